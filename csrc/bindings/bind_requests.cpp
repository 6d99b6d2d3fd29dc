// Requests for Python: what is asked of the engine.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <string>
#include <utility>

#include "base/error.h"
#include "bindings/bindings.h"
#include "bindings/python_rules.h"
#include "engine/request.h"
#include "sampling/chain.h"

namespace py = pybind11;

namespace {

using onward::BeamOptions;
using onward::EarlyStopping;
using onward::SamplingOptions;
using onward::SpeculationOptions;

py::object early_stopping(const BeamOptions& options) {
  if (options.early_stopping == EarlyStopping::never) return py::str("never");
  return py::bool_(options.early_stopping == EarlyStopping::full);
}

void set_early_stopping(BeamOptions& options, const py::object& value) {
  if (py::isinstance<py::bool_>(value)) {
    options.early_stopping = value.cast<bool>() ? EarlyStopping::full : EarlyStopping::heuristic;
  } else if (py::isinstance<py::str>(value) && value.cast<std::string>() == "never") {
    options.early_stopping = EarlyStopping::never;
  } else {
    throw onward::InvalidArgument("early_stopping: found " + std::string(py::repr(value)) +
                                  ", expected True, False or 'never'");
  }
}

}  // namespace

void bind_requests(py::module_& m) {
  py::class_<SamplingOptions>(m, "SamplingOptions")
      .def(py::init<>())
      .def_readwrite("logit_bias", &SamplingOptions::logit_bias)
      .def_readwrite("repetition_penalty", &SamplingOptions::repetition_penalty)
      .def_readwrite("presence_penalty", &SamplingOptions::presence_penalty)
      .def_readwrite("frequency_penalty", &SamplingOptions::frequency_penalty)
      .def_readwrite("dry_multiplier", &SamplingOptions::dry_multiplier)
      .def_readwrite("dry_base", &SamplingOptions::dry_base)
      .def_readwrite("dry_allowed_length", &SamplingOptions::dry_allowed_length)
      .def_readwrite("dry_sequence_breakers", &SamplingOptions::dry_sequence_breakers)
      .def_readwrite("no_repeat_ngram_size", &SamplingOptions::no_repeat_ngram_size)
      .def_readwrite("bad_words_ids", &SamplingOptions::bad_words_ids)
      .def_readwrite("allowed_token_ids", &SamplingOptions::allowed_token_ids)
      .def_readwrite("suppress_tokens", &SamplingOptions::suppress_tokens)
      .def_readwrite("temperature", &SamplingOptions::temperature)
      .def_readwrite("dynatemp_range", &SamplingOptions::dynatemp_range)
      .def_readwrite("dynatemp_exponent", &SamplingOptions::dynatemp_exponent)
      .def_readwrite("top_n_sigma", &SamplingOptions::top_n_sigma)
      .def_readwrite("top_k", &SamplingOptions::top_k)
      .def_readwrite("top_p", &SamplingOptions::top_p)
      .def_readwrite("min_p", &SamplingOptions::min_p)
      .def_readwrite("typical_p", &SamplingOptions::typical_p)
      .def_readwrite("epsilon_cutoff", &SamplingOptions::epsilon_cutoff)
      .def_readwrite("eta_cutoff", &SamplingOptions::eta_cutoff)
      .def_readwrite("xtc_probability", &SamplingOptions::xtc_probability)
      .def_readwrite("xtc_threshold", &SamplingOptions::xtc_threshold)
      .def_readwrite("mirostat", &SamplingOptions::mirostat)
      .def_readwrite("mirostat_tau", &SamplingOptions::mirostat_tau)
      .def_readwrite("mirostat_eta", &SamplingOptions::mirostat_eta)
      .def_readwrite("seed", &SamplingOptions::seed)
      .def_readwrite("stream", &SamplingOptions::stream)
      .def_readwrite("stop_token_ids", &SamplingOptions::stop_token_ids)
      .def_readwrite("min_new_tokens", &SamplingOptions::min_new_tokens)
      .def_readwrite("logprobs", &SamplingOptions::logprobs)
      .def_property(
          "sampling_order",
          [](const SamplingOptions& o) { return onward::chain_order_name(o.order); },
          [](SamplingOptions& o, const std::string& name) { o.order = onward::chain_order(name); })
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

  py::class_<BeamOptions>(m, "BeamOptions")
      .def(py::init<>())
      .def_readwrite("num_beams", &BeamOptions::num_beams)
      .def_readwrite("num_beam_groups", &BeamOptions::num_beam_groups)
      .def_readwrite("diversity_penalty", &BeamOptions::diversity_penalty)
      .def_readwrite("length_penalty", &BeamOptions::length_penalty)
      .def_property("early_stopping", &early_stopping, &set_early_stopping)
      .def_readwrite("num_return_sequences", &BeamOptions::num_return_sequences);

  py::class_<SpeculationOptions>(m, "SpeculationOptions")
      .def(py::init<>())
      .def_readwrite("lookup_tokens", &SpeculationOptions::lookup_tokens)
      .def_readwrite("lookup_ngram", &SpeculationOptions::lookup_ngram)
      .def_readwrite("draft_tokens", &SpeculationOptions::draft_tokens);
}
