// The options of a request for Python. Attributes come from the rows of the core's tables.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/error.h"
#include "bindings/bindings.h"
#include "bindings/python_rules.h"
#include "engine/request.h"
#include "sampling/chain.h"

namespace py = pybind11;

namespace {

using namespace pybind11::literals;
using onward::BeamOptions;
using onward::ChainOrder;
using onward::EarlyStopping;
using onward::Option;
using onward::SamplingOptions;
using onward::SpeculationOptions;

EarlyStopping early_stopping(const py::object& value) {
  if (py::isinstance<py::bool_>(value)) {
    return value.cast<bool>() ? EarlyStopping::full : EarlyStopping::heuristic;
  }
  if (py::isinstance<py::str>(value) && value.cast<std::string>() == "never") {
    return EarlyStopping::never;
  }
  throw onward::InvalidArgument("early_stopping: found " + std::string(py::repr(value)) +
                                ", expected True, False or 'never'");
}

// The value of an option for Python.
template <typename T>
py::object to_python(const T& value) {
  if constexpr (std::is_same_v<T, ChainOrder>) {
    return py::str(onward::chain_order_name(value));
  } else if constexpr (std::is_same_v<T, EarlyStopping>) {
    if (value == EarlyStopping::never) return py::str("never");
    return py::bool_(value == EarlyStopping::full);
  } else {
    return py::cast(value);
  }
}

template <typename T>
inline constexpr bool kIsRule = std::is_same_v<T, std::shared_ptr<onward::ScoreRule>>;

// An attribute for an option. Rules have none: methods set them.
template <typename Owner>
void bind_option(py::class_<Owner>& type, const Option<Owner>& option) {
  const auto bind = [&]<typename T>(T Owner::* field) {
    const auto get = [=](const Owner& owner) { return to_python(owner.*field); };
    if constexpr (std::is_same_v<T, ChainOrder>) {
      type.def_property(option.name, get, [=](Owner& owner, const std::string& name) {
        owner.*field = onward::chain_order(name);
      });
    } else if constexpr (std::is_same_v<T, EarlyStopping>) {
      type.def_property(option.name, get, [=](Owner& owner, const py::object& value) {
        owner.*field = early_stopping(value);
      });
    } else if constexpr (!kIsRule<T>) {
      type.def_readwrite(option.name, field);
    }
  };
  std::visit(bind, option.field);
}

// The name of a type of values in Python's table (`Option.kind`).
template <typename T>
constexpr const char* kind_of() {
  if constexpr (std::is_same_v<T, double>) return "number";
  if constexpr (std::is_same_v<T, int64_t>) return "integer";
  if constexpr (std::is_same_v<T, onward::LogitBiases>) return "biases";
  if constexpr (std::is_same_v<T, onward::TokenIds>) return "ids";
  if constexpr (std::is_same_v<T, std::optional<onward::TokenIds>>) return "allowed_ids";
  if constexpr (std::is_same_v<T, onward::TokenIdLists>) return "id_lists";
  if constexpr (std::is_same_v<T, ChainOrder>) return "name";
  if constexpr (std::is_same_v<T, EarlyStopping>) return "early_stopping";
}

// A row of a table, as the keyword arguments of Python's `Option`.
template <typename Owner>
void add_row(py::list& rows, const Option<Owner>& option, bool samples = false) {
  const auto add = [&]<typename T>(T Owner::* field) {
    if constexpr (!kIsRule<T>) {
      const onward::Range& range = option.range;
      py::list choices;
      if (range.ends_only) {
        choices.append(static_cast<int64_t>(range.low));
        choices.append(static_cast<int64_t>(range.high));
      }
      if (std::is_same_v<T, ChainOrder>) choices = py::cast(onward::chain_order_names());
      rows.append(py::dict("name"_a = option.name, "kind"_a = kind_of<T>(),
                           "default"_a = to_python(Owner().*field), "help"_a = option.help,
                           "details"_a = option.details, "low"_a = range.low, "high"_a = range.high,
                           "above_low"_a = range.above_low, "choices"_a = choices,
                           "samples"_a = samples));
    }
  };
  std::visit(add, option.field);
}

py::dict generation_options() {
  py::list beams, draw, scores, others;
  for (const auto& option : onward::beam_options()) add_row(beams, option);
  const auto add_stages = [](py::list& rows, const auto& stages, bool turns_on_the_draw) {
    for (const auto& stage : stages) {
      for (const auto& option : stage.options) {
        if (option.name == nullptr) continue;
        const bool first = &option == stage.options && &stage != &stages.front();
        add_row(rows, option, turns_on_the_draw && first);
      }
    }
  };
  add_stages(draw, onward::draw_stages(), true);
  add_stages(scores, onward::score_stages(), false);
  for (const auto& option : onward::stageless_options()) add_row(others, option);
  return py::dict("beams"_a = beams, "draw"_a = draw, "scores"_a = scores, "others"_a = others);
}

}  // namespace

void bind_requests(py::module_& m) {
  m.def("generation_options", &generation_options,
        "The rows of the core's tables of options, by table: \"beams\", \"draw\", \"scores\", "
        "\"others\".");

  py::class_<SamplingOptions> sampling(m, "SamplingOptions");
  sampling.def(py::init<>())
      .def_readwrite("seed", &SamplingOptions::seed)
      .def_readwrite("stream", &SamplingOptions::stream)
      .def_readwrite("stop_token_ids", &SamplingOptions::stop_token_ids)
      .def_readwrite("logprobs", &SamplingOptions::logprobs)
      .def(
          "set_logits_processor",
          [](SamplingOptions& o, py::object rule) {
            o.logits_processor = onward::score_rule(std::move(rule));
          },
          py::arg("rule"))
      .def(
          "set_grammar",
          [](SamplingOptions& o, py::object rule) {
            o.grammar = onward::score_rule(std::move(rule));
          },
          py::arg("rule"))
      .def("chain", &onward::stage_names);
  onward::for_each_option(
      [&](const Option<SamplingOptions>& option) { bind_option(sampling, option); });

  py::class_<BeamOptions> beams(m, "BeamOptions");
  beams.def(py::init<>());
  for (const Option<BeamOptions>& option : onward::beam_options()) bind_option(beams, option);

  py::class_<SpeculationOptions>(m, "SpeculationOptions")
      .def(py::init<>())
      .def_readwrite("lookup_tokens", &SpeculationOptions::lookup_tokens)
      .def_readwrite("lookup_ngram", &SpeculationOptions::lookup_ngram)
      .def_readwrite("draft_tokens", &SpeculationOptions::draft_tokens);
}
