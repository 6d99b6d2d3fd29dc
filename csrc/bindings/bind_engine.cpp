// Engine and Event for Python. The GIL is released in every call that computes or waits, signals
// are polled meanwhile, and a lock makes calls from several threads take turns.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "cpu/cpu_backend.h"
#include "engine/engine.h"
#include "onward/error.h"

namespace py = pybind11;

namespace {

using onward::Engine;
using onward::Event;
using onward::FinishReason;
using onward::Model;
using onward::Request;
using onward::SamplingOptions;

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

class PyEngine {
 public:
  PyEngine(std::shared_ptr<Model> model, int threads, int64_t prefill_chunk_tokens)
      : engine_(std::move(model), onward::cpu::make_backend(threads), prefill_chunk_tokens),
        mutex_(std::make_unique<std::timed_mutex>()) {}

  // Runs body(engine) without the GIL and with the engine to itself.
  template <typename Body>
  auto alone(const Body& body) {
    py::gil_scoped_release release;
    std::unique_lock<std::timed_mutex> lock(*mutex_, std::defer_lock);
    while (!lock.try_lock_for(kSignalInterval)) check_signals();
    if (broken_by_fork_) {
      throw onward::Error(
          "engine: this process was forked while another thread was inside the engine; load the "
          "model again in the child");
    }
    return body(engine_);
  }

  // In a forked child: the parent's requests are not the child's, and a lock that another thread
  // held can never be released.
  void reset_after_fork() {
    if (mutex_->try_lock()) {
      mutex_->unlock();
      engine_.cancel_all();
    } else {
      broken_by_fork_ = true;
      mutex_.release();  // destroying a locked mutex is undefined
      mutex_ = std::make_unique<std::timed_mutex>();
    }
  }

  const Engine& engine() const { return engine_; }

 private:
  Engine engine_;
  std::unique_ptr<std::timed_mutex> mutex_;
  bool broken_by_fork_ = false;
};

std::vector<int32_t> to_vector(const TokenIds& ids) {
  if (ids.ndim() != 1) {
    throw onward::InvalidArgument("token_ids: have " + std::to_string(ids.ndim()) +
                                  " dimensions, expected 1");
  }
  return {ids.data(), ids.data() + ids.size()};
}

int64_t submit(PyEngine& engine, const TokenIds& prompt, int64_t max_new_tokens,
               int64_t min_new_tokens, const std::vector<int32_t>& stop_token_ids,
               const SamplingOptions& sampling, bool cache) {
  Request request;
  request.prompt = to_vector(prompt);
  request.max_new_tokens = max_new_tokens;
  request.min_new_tokens = min_new_tokens;
  request.stop_token_ids = stop_token_ids;
  request.sampling = sampling;
  request.cache = cache;
  return engine.alone([&](Engine& e) { return e.submit(std::move(request)); });
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

py::dict stats(PyEngine& engine) {
  const onward::EngineStats stats = engine.alone([](Engine& e) { return e.stats(); });
  py::dict result;
  result["steps"] = stats.steps;
  result["prefill_tokens"] = stats.prefill_tokens;
  result["decode_tokens"] = stats.decode_tokens;
  result["kv_computations"] = stats.kv_computations;
  result["running"] = stats.running;
  result["cache_blocks_in_use"] = stats.cache_blocks_in_use;
  result["cache_block_bytes"] = stats.cache_block_bytes;
  result["cache_bytes_reserved"] = stats.cache_bytes_reserved;
  return result;
}

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

}  // namespace

void bind_engine(py::module_& m) {
  py::class_<Event>(m, "Event")
      .def_readonly("request", &Event::request)
      .def_readonly("token", &Event::token)
      .def_property_readonly("finish_reason", &finish_reason)
      .def_readonly("error", &Event::error)
      .def_readonly("numerics_error", &Event::numerics_error)
      .def_readonly("invalid_argument", &Event::invalid_argument)
      .def_readonly("time", &Event::time);

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
      .def_readwrite("stream", &SamplingOptions::stream);

  py::class_<PyEngine>(m, "Engine")
      .def(py::init<std::shared_ptr<Model>, int, int64_t>(), py::arg("model"), py::kw_only(),
           py::arg("threads"), py::arg("prefill_chunk_tokens"))
      .def("submit", &submit, py::arg("prompt"), py::kw_only(), py::arg("max_new_tokens"),
           py::arg("min_new_tokens"), py::arg("stop_token_ids"), py::arg("sampling"),
           py::arg("cache"))
      .def("step",
           [](PyEngine& engine) {
             return engine.alone([](Engine& e) { return e.step(SignalPoll()); });
           })
      .def(
          "cancel",
          [](PyEngine& engine, int64_t request) {
            engine.alone([=](Engine& e) { e.cancel(request); });
          },
          py::arg("request"))
      .def("logits", &logits, py::arg("token_ids"))
      .def("score", &score, py::arg("token_ids"))
      .def("stats", &stats)
      .def("reset_after_fork", &PyEngine::reset_after_fork)
      .def_property_readonly(
          "backend", [](const PyEngine& engine) { return engine.engine().backend().name(); })
      .def_property_readonly(
          "threads", [](const PyEngine& engine) { return engine.engine().backend().threads(); });
}
