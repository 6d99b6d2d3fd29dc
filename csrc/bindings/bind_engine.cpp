// The engine for Python. The GIL is released in every call that computes or waits, signals
// are polled meanwhile, and calls from several threads take turns.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bindings/bindings.h"
#include "bindings/python_rules.h"
#include "capi/wrap.h"
#include "device/device.h"
#include "engine/codec_names.h"
#include "engine/shared_engine.h"

namespace py = pybind11;

namespace {

using onward::Backend;
using onward::BeamOptions;
using onward::Engine;
using onward::EngineClient;
using onward::EngineOptions;
using onward::Model;
using onward::Request;
using onward::SamplingOptions;
using onward::SharedEngine;
using onward::SpeculationOptions;

using Clock = std::chrono::steady_clock;
using TokenIds = py::array_t<int32_t, py::array::c_style>;

constexpr auto kSignalInterval = std::chrono::milliseconds(50);

// Lets Python's signal handlers run (they do in the main thread only); throws what they raise, a
// KeyboardInterrupt as a rule. Called without the GIL.
void check_signals() {
  py::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

class SignalPoll {
 public:
  void operator()() {
    const auto now = Clock::now();
    if (now - last_ < kSignalInterval) return;
    last_ = now;
    check_signals();
  }

 private:
  Clock::time_point last_ = Clock::now();
};

// A client of the engine: others (capi/) may share it.
class PyEngine {
 public:
  PyEngine(std::shared_ptr<Model> model, std::unique_ptr<Backend> backend,
           const EngineOptions& options, std::shared_ptr<Model> draft)
      : client_(std::make_unique<EngineClient>(std::make_shared<SharedEngine>(
            std::move(model), std::move(backend), options, std::move(draft)))) {}
  ~PyEngine() {
    // What the engine holds may be Python's, and wants the GIL of whoever destroys it.
    const py::gil_scoped_release release;
    client_.reset();
  }
  PyEngine(const PyEngine&) = delete;
  PyEngine& operator=(const PyEngine&) = delete;

  // Runs body(engine) without the GIL and with the engine to itself.
  template <typename Body>
  auto alone(const Body& body) {
    const py::gil_scoped_release release;
    return client_->alone(SignalPoll(), body);
  }
  int64_t submit(Request request) {
    const py::gil_scoped_release release;
    return client_->submit(std::move(request), SignalPoll());
  }
  std::vector<onward::Event> step() {
    const py::gil_scoped_release release;
    return client_->step(SignalPoll());
  }
  // Steps until there are events, for as long as any are to come and nobody has called pause().
  std::vector<onward::Event> run() {
    const py::gil_scoped_release release;
    const SharedEngine::Poll poll = SignalPoll();  // one: a step may be shorter than its interval
    for (;;) {
      std::vector<onward::Event> events = client_->step(poll);
      if (!events.empty() || paused_.exchange(false) || !client_->expects()) return events;
    }
  }
  bool expects() const {
    const py::gil_scoped_release release;
    return client_->expects();
  }
  void give_back(std::vector<onward::Event> events) {
    const py::gil_scoped_release release;
    client_->give_back(std::move(events));
  }
  // One that comes between two runs holds for the next, so that none comes too early.
  void pause() { paused_.store(true); }
  void cancel(int64_t request, std::optional<int64_t> sequence) {
    const py::gil_scoped_release release;
    sequence ? client_->cancel(request, *sequence) : client_->cancel(request);
  }
  void reset_after_fork() { client_->shared()->reset_after_fork(); }

  const Engine& engine() const { return client_->shared()->engine(); }
  uintptr_t new_handle(std::vector<int32_t> eos_token_ids) const {
    return onward::capi::open_engine_handle(client_->shared(), std::move(eos_token_ids));
  }

 private:
  std::unique_ptr<EngineClient> client_;
  std::atomic<bool> paused_{false};
};

std::unique_ptr<PyEngine> make_engine(std::shared_ptr<Model> model, int threads,
                                      int64_t prefill_chunk_tokens, int64_t max_sequences,
                                      std::shared_ptr<Model> draft, int64_t max_context,
                                      const std::string& kv_keys, const std::string& kv_values,
                                      int64_t kv_window_tokens, bool kv_sinks,
                                      int64_t attention_window,
                                      std::optional<int64_t> kv_cache_bytes, bool prefix_cache,
                                      std::optional<int64_t> prefix_cache_bytes) {
  EngineOptions options;
  options.prefill_chunk_tokens = prefill_chunk_tokens;
  options.max_sequences = max_sequences;
  options.max_context = max_context;
  options.cache = {onward::kv_codec("kv_keys", kv_keys), onward::kv_codec("kv_values", kv_values),
                   kv_window_tokens, kv_sinks, attention_window};
  if (kv_cache_bytes) options.cache_bytes = *kv_cache_bytes;
  options.prefixes.reuse = prefix_cache;
  if (prefix_cache_bytes) options.prefixes.kept_bytes = *prefix_cache_bytes;
  auto backend = onward::Device(model->store->device()).make_backend(threads);
  return std::make_unique<PyEngine>(std::move(model), std::move(backend), options,
                                    std::move(draft));
}

std::vector<int32_t> to_vector(const TokenIds& ids) {
  if (ids.ndim() != 1) {
    throw onward::InvalidArgument("token_ids: have " + std::to_string(ids.ndim()) +
                                  " dimensions, expected 1");
  }
  return {ids.data(), ids.data() + ids.size()};
}

int64_t submit(PyEngine& engine, const TokenIds& prompt, int64_t max_new_tokens,
               const SamplingOptions& sampling, int64_t num_sequences,
               const std::optional<BeamOptions>& beams, const SpeculationOptions& speculation,
               const std::vector<py::object>& end_rules, int64_t prompt_logprobs, int64_t priority,
               bool cache, bool progress, bool gather) {
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
  return engine.submit(std::move(request));
}

py::list step(PyEngine& engine) {
  py::list events;
  for (const onward::Event& event : engine.step()) events.append(to_python(event));
  return events;
}

// None: there is none, or nobody reads it any more.
py::object mailbox_of(const py::dict& mailboxes, const py::int_& request) {
  PyObject* owner = PyDict_GetItemWithError(mailboxes.ptr(), request.ptr());
  if (owner != nullptr) return py::reinterpret_borrow<py::object>(owner)();
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  return py::none();
}

void deliver(PyEngine& engine, const onward::Event& event, const py::dict& mailboxes) {
  static PyObject* const append = PyUnicode_InternFromString("append");
  const py::int_ request(event.request);
  const py::object mailbox = mailbox_of(mailboxes, request);
  if (!mailbox.is_none()) {
    PyObject* none = PyObject_CallMethodOneArg(mailbox.ptr(), append, to_python(event).ptr());
    if (none == nullptr) throw py::error_already_set();
    Py_DECREF(none);
  }
  if (event.ends_request) {
    mailboxes.attr("pop")(request, py::none());
  } else if (mailbox.is_none()) {
    engine.cancel(event.request, std::nullopt);
  }
}

// A signal's handler runs between two bytecodes: none comes between an event and its mailbox.
bool run(PyEngine& engine, const py::dict& mailboxes) {
  std::vector<onward::Event> events = engine.run();
  size_t delivered = 0;
  try {
    for (; delivered < events.size(); ++delivered) deliver(engine, events[delivered], mailboxes);
  } catch (...) {
    events.erase(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(delivered));
    engine.give_back(std::move(events));
    throw;
  }
  return !events.empty() || engine.expects();
}

py::array_t<float> logits(PyEngine& engine, const TokenIds& token_ids) {
  const std::vector<int32_t> ids = to_vector(token_ids);
  const std::vector<float> values =
      engine.alone([&](Engine& e) { return e.logits(ids, SignalPoll()); });
  const int64_t vocab_size = engine.engine().model().spec.vocab_size;
  return py::array_t<float>({static_cast<int64_t>(ids.size()), vocab_size}, values.data());
}

py::array_t<double> score(PyEngine& engine, const TokenIds& token_ids) {
  const std::vector<int32_t> ids = to_vector(token_ids);
  const std::vector<double> scores =
      engine.alone([&](Engine& e) { return e.score(ids, SignalPoll()); });
  return py::array_t<double>(static_cast<py::ssize_t>(scores.size()), scores.data());
}

// (group, coded, index of the block, its bytes) each.
using StoredBlocks = std::vector<std::tuple<int64_t, bool, int64_t, py::bytes>>;

StoredBlocks store_prefix(PyEngine& engine, const TokenIds& token_ids) {
  const std::vector<int32_t> ids = to_vector(token_ids);
  const std::vector<onward::StoredBlock> blocks =
      engine.alone([&](Engine& e) { return e.store_prefix(ids, SignalPoll()); });
  StoredBlocks result;
  for (const onward::StoredBlock& block : blocks) {
    result.emplace_back(block.group, block.coded, block.index,
                        py::bytes(block.bytes.data(), block.bytes.size()));
  }
  return result;
}

void restore_prefix(PyEngine& engine, const TokenIds& token_ids,
                    const std::vector<std::tuple<int64_t, bool, int64_t, py::buffer>>& blocks) {
  const std::vector<int32_t> ids = to_vector(token_ids);
  std::vector<onward::StoredBlock> stored;
  for (const auto& [group, coded, index, buffer] : blocks) {
    const py::buffer_info info = buffer.request();
    if (PyBuffer_IsContiguous(info.view(), 'C') == 0) {
      throw onward::InvalidArgument("block: is strided, expected contiguous memory");
    }
    const char* bytes = static_cast<const char*>(info.ptr);
    stored.push_back({group, coded, index, {bytes, bytes + info.size * info.itemsize}});
  }
  engine.alone([&](Engine& e) { e.restore_prefix(ids, stored); });
}

py::dict stats(PyEngine& engine) {
  const onward::EngineStats stats = engine.alone([](Engine& e) { return e.stats(); });
  py::dict result;
  result["steps"] = stats.steps;
  result["prefill_tokens"] = stats.prefill_tokens;
  result["decode_tokens"] = stats.decode_tokens;
  result["kv_computations"] = stats.kv_computations;
  result["running"] = stats.running;
  result["waiting"] = stats.waiting;
  result["preempted"] = stats.preempted;
  result["sampled_on_device"] = stats.sampled_on_device;
  result["logits_rows_read"] = stats.logits_rows_read;
  result["cache_blocks_in_use"] = stats.cache_blocks_in_use;
  result["cache_block_bytes"] = stats.cache_block_bytes;
  result["cache_bytes_reserved"] = stats.cache_bytes_reserved;
  result["cache_bytes"] = stats.cache_bytes;
  result["cache_bytes_limit"] = stats.cache_bytes_limit;
  result["prefix_tokens"] = stats.prefix_tokens;
  result["prefix_bytes"] = stats.prefix_bytes;
  result["prefix_evictions"] = stats.prefix_evictions;
  result["prefix_lookups"] = stats.prefixes.lookups;
  result["prefix_hits"] = stats.prefixes.hits;
  result["prefix_hit_tokens"] = stats.prefixes.hit_tokens;
  result["prefix_lookup_tokens"] = stats.prefixes.lookup_tokens;
  return result;
}

}  // namespace

void bind_engine(py::module_& m) {
  py::class_<PyEngine>(m, "Engine")
      .def(py::init(&make_engine), py::arg("model"), py::kw_only(), py::arg("threads"),
           py::arg("prefill_chunk_tokens"), py::arg("max_sequences") = 256,
           py::arg("draft") = py::none(), py::arg("max_context") = 0, py::arg("kv_keys") = "exact",
           py::arg("kv_values") = "exact", py::arg("kv_window_tokens") = 128,
           py::arg("kv_sinks") = true, py::arg("attention_window") = 0,
           py::arg("kv_cache_bytes") = py::none(), py::arg("prefix_cache") = true,
           py::arg("prefix_cache_bytes") = py::none())
      .def("submit", &submit, py::arg("prompt"), py::kw_only(), py::arg("max_new_tokens"),
           py::arg("sampling"), py::arg("num_sequences") = 1, py::arg("beams") = py::none(),
           py::arg("speculation") = SpeculationOptions(),
           py::arg("end_rules") = std::vector<py::object>(), py::arg("prompt_logprobs") = -1,
           py::arg("priority") = 0, py::arg("cache") = true, py::arg("progress") = false,
           py::arg("gather") = false)
      .def("step", &step)
      .def("run", &run, py::arg("mailboxes"))
      .def("pause", &PyEngine::pause)
      .def("cancel", &PyEngine::cancel, py::arg("request"), py::arg("sequence") = py::none())
      .def("logits", &logits, py::arg("token_ids"))
      .def("score", &score, py::arg("token_ids"))
      .def("store_prefix", &store_prefix, py::arg("token_ids"))
      .def("restore_prefix", &restore_prefix, py::arg("token_ids"), py::arg("blocks"))
      .def("forget_prefixes",
           [](PyEngine& engine) { engine.alone([](Engine& e) { e.forget_prefixes(); }); })
      .def("stats", &stats)
      .def("reset_after_fork", &PyEngine::reset_after_fork)
      .def("new_handle", &PyEngine::new_handle, py::arg("eos_token_ids"))
      .def_property_readonly(
          "backend", [](const PyEngine& engine) { return engine.engine().backend().name(); })
      .def_property_readonly(
          "threads", [](const PyEngine& engine) { return engine.engine().backend().threads(); });
}
