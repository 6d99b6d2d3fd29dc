// Part of onward/onward.h: the engine. It has no thread of its own: whoever calls step() computes
// the next step for all requests, and reads the events of those that were submitted here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "onward/error.h"
#include "onward/event.h"
#include "onward/model.h"
#include "onward/onward_c.h"
#include "onward/request.h"

namespace onward {
inline namespace v1 {

// The fields of onward_engine_options; the names of codecs are strings of their own.
struct EngineOptions : onward_engine_options {
  EngineOptions() noexcept : onward_engine_options() {
    size = sizeof(onward_engine_options);
    onward_engine_options_init(this);
  }
  std::string kv_keys;    // "": the default; else "exact", "int8", "q4_0", "turbo4"...
  std::string kv_values;  // the same
};

// Movable, and closes itself. Every call but moving, close() and the destructor may come from any
// thread; interrupt() from a signal handler too. One that was moved from is a closed one.
class Engine {
 public:
  using Trace = std::function<void(const StepTrace&)>;

  explicit Engine(const Model& model, const EngineOptions& options = EngineOptions())
      : state_(std::make_unique<State>()) {
    onward_engine_options fields = options;
    fields.kv_keys = options.kv_keys.empty() ? nullptr : options.kv_keys.c_str();
    fields.kv_values = options.kv_values.empty() ? nullptr : options.kv_values.c_str();
    state_->vocab_size = model.info().vocab_size;
    check(onward_engine_open(model.handle(), &fields, &state_->handle));
  }

  // Takes over a handle to an engine that others share, as a number: that of Python's
  // LLM.engine_handle(). vocab_size is what logits() needs to know.
  static Engine from_handle(std::uintptr_t handle, std::int64_t vocab_size = 0) {
    Engine engine;
    engine.state_->handle = reinterpret_cast<onward_engine>(handle);
    engine.state_->vocab_size = vocab_size;
    return engine;
  }

  ~Engine() { close(); }
  Engine(Engine&& other) noexcept = default;
  Engine& operator=(Engine&& other) noexcept {
    if (this != &other) {
      close();
      state_ = std::move(other.state_);
    }
    return *this;
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Gives up the requests that were submitted here; others who share the engine go on.
  void close() noexcept {
    if (state_ == nullptr) return;
    if (state_->trace) onward_engine_set_trace(state_->handle, nullptr, nullptr);
    onward_engine_close(state_->handle);
    state_.reset();  // the rules go after those who call them
  }

  // Takes a request; returns the id that its events carry. Rules are kept until the request ends.
  std::int64_t submit(const Request& request) {
    State& state = opened();
    std::unique_ptr<Request::Rules> rules;
    if (request.score_rule_ || request.end_rule_) {
      rules.reset(new Request::Rules{request.score_rule_, request.end_rule_, nullptr});
    }
    // Held over the call, so that a thread that reads the request's last event finds its rules.
    const std::lock_guard<std::mutex> lock(state.mutex);
    std::int64_t id = 0;
    const auto place = state.requests.emplace(kNoRequest, nullptr).first;  // may throw: before
    auto node = state.requests.extract(place);
    request.lend(rules.get(), [&](const onward_request& lent) {
      check(onward_engine_submit(state.handle, &lent, &id));
    });
    node.key() = id;
    node.mapped() = std::move(rules);
    state.requests.insert(std::move(node));
    return id;
  }

  // Runs one step for everybody, unless events are left from an earlier one, and returns events of
  // this engine's requests in order. None: there is nothing to do, or it was others' turn. Throws
  // Interrupted after interrupt(): nothing is lost, and the next step starts over.
  std::vector<Event> step() {
    State& state = opened();
    std::array<onward_event, kEventsAtMost> told;
    std::size_t count = 0;
    check(onward_engine_step(state.handle, told.data(), sizeof(onward_event), told.size(), &count));
    std::vector<Event> events;
    events.reserve(count);
    for (std::size_t i = 0; i < count; ++i) events.emplace_back(told[i]);
    const std::lock_guard<std::mutex> lock(state.mutex);
    for (Event& event : events) {
      if (!event.ends_request) continue;
      const auto ended = state.requests.find(event.request);
      if (ended == state.requests.end()) continue;
      if (ended->second != nullptr) event.thrown = ended->second->thrown;
      state.requests.erase(ended);
    }
    return events;
  }

  // Steps until every request that was submitted here has ended, and tells each event. Only one
  // thread reads the events of one Engine in this way.
  void run(const std::function<void(const Event&)>& on_event) {
    while (active() > 0) {
      const std::vector<Event> events = step();
      for (const Event& event : events) on_event(event);
      // A request whose sequences were all cancelled one by one ends without a word.
      if (events.empty() && stats().running == 0) return;
    }
  }

  // Requests that were submitted here and have not ended.
  std::size_t active() const {
    State& state = opened();
    const std::lock_guard<std::mutex> lock(state.mutex);
    return state.requests.size();
  }

  // No event of the request, or of one of its sequences, follows. One that is unknown or has ended
  // is left alone.
  void cancel(std::int64_t request) {
    State& state = opened();
    check(onward_engine_cancel(state.handle, request));
    const std::lock_guard<std::mutex> lock(state.mutex);
    state.requests.erase(request);
  }
  void cancel(std::int64_t request, std::int64_t sequence) {
    check(onward_engine_cancel_sequence(opened().handle, request, sequence));
  }

  // The step that runs now, or else the next one, ends within one layer with Interrupted.
  void interrupt() noexcept {
    if (state_ != nullptr) onward_engine_interrupt(state_->handle);
  }

  // Natural logarithms of the probabilities of ids[1], ids[2]...: ids.size() - 1 of them.
  std::vector<double> score(const std::vector<std::int32_t>& ids) {
    std::vector<double> logprobs(ids.empty() ? 0 : ids.size() - 1);
    check(onward_engine_score(opened().handle, ids.data(), ids.size(), logprobs.data()));
    return logprobs;
  }

  // Logits after each id: (ids.size(), vocab_size).
  std::vector<float> logits(const std::vector<std::int32_t>& ids) {
    const State& state = opened();
    if (state.vocab_size <= 0) {
      throw InvalidArgument("Engine::logits: vocab_size is unknown, expected in from_handle");
    }
    std::vector<float> values(ids.size() * static_cast<std::size_t>(state.vocab_size));
    check(onward_engine_logits(state.handle, ids.data(), ids.size(), values.data()));
    return values;
  }

  Stats stats() const {
    Stats stats = {};
    stats.size = sizeof(stats);
    check(onward_engine_stats(opened().handle, &stats));
    return stats;
  }

  // Told what each step did, by the thread that ran it and for everybody who shares the engine; an
  // empty function: no more. trace must not call the engine; what it throws is dropped.
  void set_trace(Trace trace) {
    State& state = opened();
    auto next = trace ? std::make_unique<Trace>(std::move(trace)) : nullptr;
    const std::lock_guard<std::mutex> lock(state.trace_mutex);
    check(onward_engine_set_trace(state.handle, next ? &call_trace : nullptr, next.get()));
    state.trace = std::move(next);  // the one before is called no more
  }

  onward_engine handle() const noexcept { return state_ == nullptr ? nullptr : state_->handle; }

 private:
  static constexpr std::size_t kEventsAtMost = 128;  // of one step(); the rest comes with the next
  static constexpr std::int64_t kNoRequest = -1;

  struct State {
    onward_engine handle = nullptr;
    std::int64_t vocab_size = 0;
    std::mutex mutex;                                                  // of requests
    std::map<std::int64_t, std::unique_ptr<Request::Rules>> requests;  // that have not ended
    std::mutex trace_mutex;
    std::unique_ptr<Trace> trace;
  };

  Engine() : state_(std::make_unique<State>()) {}

  State& opened() const {
    if (state_ == nullptr) throw Closed("Engine: is closed, expected an open one");
    return *state_;
  }

  static void call_trace(void* context, const onward_step_trace* step) noexcept {
    try {
      (*static_cast<Trace*>(context))(*step);
    } catch (...) {  // a step is not undone for one who only watches
    }
  }

  std::unique_ptr<State> state_;
};

}  // namespace v1
}  // namespace onward
