// The engine's events for Python. An event is a named tuple, because every streamed token has
// one, and a named tuple takes a fraction of the time of a bound class.
#include <cmath>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "engine/request.h"

namespace py = pybind11;

namespace {

using onward::Event;
using onward::FinishReason;
using onward::Gathered;
using onward::ScoredToken;
using onward::TokenLogprobs;

PyStructSequence_Field kFields[] = {
    {"request", nullptr},         {"sequence", nullptr},      {"token", nullptr},
    {"finish_reason", nullptr},   {"ends_request", nullptr},  {"time", nullptr},
    {"gathered", nullptr},        {"score", nullptr},         {"logprobs", nullptr},
    {"prompt_logprobs", nullptr}, {"cached_tokens", nullptr}, {"prompt_computed", nullptr},
    {"guessed", nullptr},         {"accepted", nullptr},      {"failure", nullptr},
    {nullptr, nullptr},
};
PyStructSequence_Desc kEvent = {"onward._core.Event", nullptr, kFields, 15};
PyTypeObject* event_type = nullptr;

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

py::list pairs(const std::vector<ScoredToken>& tokens) {
  py::list list;
  for (const ScoredToken& token : tokens) list.append(py::make_tuple(token.id, token.score));
  return list;
}

py::tuple logprobs(const std::vector<TokenLogprobs>& each) {
  py::tuple all(each.size());
  for (size_t i = 0; i < each.size(); ++i) all[i] = py::cast(each[i]);
  return all;
}

py::object gathered(const Gathered* found) {
  if (found == nullptr) return py::none();
  py::tuple tokens(found->tokens.size());
  for (size_t i = 0; i < found->tokens.size(); ++i) tokens[i] = py::int_(found->tokens[i]);
  return py::make_tuple(tokens, logprobs(found->logprobs), found->first_time);
}

// Raising an exception makes a cycle: it refers to its frames, the frames to the event, and the
// event to the exception, where the garbage collector does not see it. So the event drops it when
// it is raised.
py::object failure(std::exception_ptr found) {
  if (!found) return py::none();
  auto held = std::make_unique<std::exception_ptr>(std::move(found));
  py::capsule capsule(held.get(), [](void* p) { delete static_cast<std::exception_ptr*>(p); });
  held.release();
  return capsule;
}

void raise_failure(const py::object& event) {
  const py::object held = event.attr("failure");
  if (held.is_none()) return;
  auto& found = *py::reinterpret_borrow<py::capsule>(held).get_pointer<std::exception_ptr>();
  if (found) std::rethrow_exception(std::exchange(found, nullptr));
}

}  // namespace

py::object to_python(const Event& event) {
  py::object made = py::reinterpret_steal<py::object>(PyStructSequence_New(event_type));
  if (!made) throw py::error_already_set();
  Py_ssize_t place = 0;
  const auto add = [&](py::object value) {
    PyStructSequence_SetItem(made.ptr(), place++, value.release().ptr());
  };
  add(py::int_(event.request));
  add(py::int_(event.sequence));
  add(py::int_(event.token));
  add(finish_reason(event));
  add(py::bool_(event.ends_request));
  add(py::float_(event.time));
  add(gathered(event.gathered.get()));
  add(std::isnan(event.score) ? py::object(py::none()) : py::float_(event.score));
  add(event.logprobs ? py::cast(*event.logprobs) : py::none());
  add(logprobs(event.prompt_logprobs));
  add(py::int_(event.cached_tokens));
  add(py::int_(event.prompt_computed));
  add(py::int_(event.guessed));
  add(py::int_(event.accepted));
  add(failure(event.failure));
  return made;
}

void bind_events(py::module_& m) {
  py::class_<TokenLogprobs>(m, "TokenLogprobs")
      .def_readonly("token", &TokenLogprobs::token)
      .def_readonly("raw", &TokenLogprobs::raw)
      .def_readonly("chain", &TokenLogprobs::chain)
      .def_property_readonly("raw_top", [](const TokenLogprobs& l) { return pairs(l.raw_top); })
      .def_property_readonly("chain_top",
                             [](const TokenLogprobs& l) { return pairs(l.chain_top); });

  event_type = PyStructSequence_NewType(&kEvent);
  if (event_type == nullptr) throw py::error_already_set();
  const py::handle type(reinterpret_cast<PyObject*>(event_type));
  py::setattr(type, "raise_failure",
              py::cpp_function(&raise_failure, py::name("raise_failure"), py::is_method(type)));
  m.attr("Event") = type;
}
