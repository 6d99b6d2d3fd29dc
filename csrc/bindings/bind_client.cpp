// Requests and the clients that submit them, for Python. A client is one caller's place in an
// engine.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "bindings/bindings.h"
#include "bindings/python_engine.h"
#include "bindings/python_rules.h"

namespace py = pybind11;

namespace {

using onward::BeamOptions;
using onward::PyClient;
using onward::Request;
using onward::SamplingOptions;
using onward::SpeculationOptions;

Request make_request(const TokenIds& prompt, int64_t max_new_tokens,
                     const SamplingOptions& sampling, int64_t num_sequences,
                     const std::optional<BeamOptions>& beams, const SpeculationOptions& speculation,
                     const std::vector<py::object>& end_rules, int64_t prompt_logprobs,
                     int64_t priority, bool cache, bool progress, bool gather) {
  Request request;
  request.prompt = to_vector(prompt);
  request.max_new_tokens = max_new_tokens;
  request.sampling = sampling;
  request.num_sequences = num_sequences;
  request.beams = beams;
  request.speculation = speculation;
  for (const py::object& rule : end_rules) request.end_rules.push_back(onward::end_rule(rule));
  request.prompt_logprobs = prompt_logprobs;
  request.priority = priority;
  request.cache = cache;
  request.progress = progress;
  request.gather = gather;
  return request;
}

}  // namespace

std::vector<int32_t> to_vector(const TokenIds& ids) {
  if (ids.ndim() != 1) {
    throw onward::InvalidArgument("token_ids: have " + std::to_string(ids.ndim()) +
                                  " dimensions, expected 1");
  }
  return {ids.data(), ids.data() + ids.size()};
}

void bind_client(py::module_& m) {
  py::class_<Request>(m, "Request")
      .def(py::init(&make_request), py::arg("prompt"), py::kw_only(), py::arg("max_new_tokens"),
           py::arg("sampling"), py::arg("num_sequences") = 1, py::arg("beams") = py::none(),
           py::arg("speculation") = SpeculationOptions(),
           py::arg("end_rules") = std::vector<py::object>(), py::arg("prompt_logprobs") = -1,
           py::arg("priority") = 0, py::arg("cache") = true, py::arg("progress") = false,
           py::arg("gather") = false);

  py::class_<PyClient>(m, "EngineClient")
      .def("submit", &PyClient::submit, py::arg("requests"))
      .def("next_event", [](PyClient& client) { return to_python(client.next_event()); })
      .def("cancel", &PyClient::cancel, py::arg("request"), py::arg("sequence") = py::none())
      .def("close", &PyClient::close);
}
