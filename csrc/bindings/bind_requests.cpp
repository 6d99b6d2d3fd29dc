// Requests and events for Python: what is asked of the engine, and what it answers.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cmath>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bindings/bindings.h"
#include "bindings/python_rules.h"
#include "engine/request.h"
#include "sampling/chain.h"

namespace py = pybind11;

namespace {

using onward::BeamOptions;
using onward::EarlyStopping;
using onward::Event;
using onward::FinishReason;
using onward::SamplingOptions;
using onward::ScoredToken;
using onward::SpeculationOptions;
using onward::TokenLogprobs;

py::object finish_reason(const Event& event) {
  switch (event.finish) {
    case FinishReason::none:
      return py::none();
    case FinishReason::stop:
      return py::str("stop");
    case FinishReason::length:
      return py::str("length");
    case FinishReason::error:
      return py::str("error");
  }
  return py::none();
}

py::object score(const Event& event) {
  return std::isnan(event.score) ? py::object(py::none()) : py::float_(event.score);
}

// The event lets go of it: an exception knows the frames that it went through, they know the event,
// and the garbage collector does not see what an event holds.
void raise_failure(Event& event) {
  if (event.failure) std::rethrow_exception(std::exchange(event.failure, nullptr));
}

py::list pairs(const std::vector<ScoredToken>& tokens) {
  py::list list;
  for (const ScoredToken& token : tokens) list.append(py::make_tuple(token.id, token.score));
  return list;
}

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

void bind_events(py::module_& m) {
  py::class_<TokenLogprobs>(m, "TokenLogprobs")
      .def_readonly("token", &TokenLogprobs::token)
      .def_readonly("raw", &TokenLogprobs::raw)
      .def_readonly("chain", &TokenLogprobs::chain)
      .def_property_readonly("raw_top", [](const TokenLogprobs& l) { return pairs(l.raw_top); })
      .def_property_readonly("chain_top",
                             [](const TokenLogprobs& l) { return pairs(l.chain_top); });

  py::class_<Event>(m, "Event")
      .def_readonly("request", &Event::request)
      .def_readonly("sequence", &Event::sequence)
      .def_readonly("token", &Event::token)
      .def_property_readonly("finish_reason", &finish_reason)
      .def_readonly("ends_request", &Event::ends_request)
      .def_property_readonly("score", &score)
      .def_readonly("logprobs", &Event::logprobs)
      .def_readonly("prompt_logprobs", &Event::prompt_logprobs)
      .def_readonly("cached_tokens", &Event::cached_tokens)
      .def_readonly("prompt_computed", &Event::prompt_computed)
      .def_readonly("guessed", &Event::guessed)
      .def_readonly("accepted", &Event::accepted)
      .def("raise_failure", &raise_failure)
      .def_readonly("time", &Event::time);
}

}  // namespace

void bind_requests(py::module_& m) {
  bind_events(m);

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
