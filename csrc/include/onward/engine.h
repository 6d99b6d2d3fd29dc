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
#include <set>
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
  EngineOptions() noexcept : onward_engine_options() { onward_engine_options_init(this); }
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

  // Takes over a handle to an engine that others share, as a number: what Python's
  // LLM.engine_handle() returns.
  static Engine from_handle(std::uintptr_t handle) {
    Engine engine;
    engine.state_->handle = reinterpret_cast<onward_engine>(handle);
    engine.state_->vocab_size = engine.model().info().vocab_size;
    return engine;
  }

  // One more for the same engine, with requests and events of its own: each thread may have one.
  Engine share() const {
    onward_engine other = nullptr;
    check(onward_engine_share(opened().handle, &other));
    return from_handle(reinterpret_cast<std::uintptr_t>(other));
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

  // Gives up the requests that were submitted here; others who share the engine go on. Not from
  // inside a rule or a trace, which it destroys.
  void close() noexcept {
    if (state_ == nullptr) return;
    onward_engine_close(state_->handle);
    state_.reset();  // the rules go after those who call them
  }

  // Takes a request; returns the id that its events carry. Rules are kept until the request ends.
  std::int64_t submit(const Request& request) {
    State& state = opened();
    Place place;
    place.sequences = request.num_sequences();
    if (request.score_rule_ || request.end_rule_) {
      place.rules.reset(new Request::Rules{request.score_rule_, request.end_rule_, nullptr});
    }
    // Memory is taken before the library has the rules.
    Places waiting;
    auto node = waiting.extract(waiting.emplace(0, std::move(place)).first);
    std::int64_t id = 0;
    request.lend(node.mapped().rules.get(), [&](const onward_request& lent) {
      check(onward_engine_submit(state.handle, &lent, &id));
    });
    node.key() = id;
    const std::lock_guard<std::mutex> lock(state.mutex);
    if (state.ended_early.erase(id) == 0) state.requests.insert(std::move(node));
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
    release_cancelled(state);
    const std::lock_guard<std::mutex> lock(state.mutex);
    for (Event& event : events) {
      const auto place = state.requests.find(event.request);
      if (place == state.requests.end()) {
        if (event.ends_request) state.ended_early.insert(event.request);
        continue;
      }
      if (event.finish != Finish::none) place->second.ended.insert(event.sequence);
      if (!event.ends_request) continue;
      if (place->second.rules != nullptr) event.thrown = place->second.rules->thrown;
      state.requests.erase(place);
    }
    return events;
  }

  // Steps until every request that was submitted here has ended, and tells each event.
  void run(const std::function<void(const Event&)>& on_event) {
    while (active() > 0) {
      for (const Event& event : step()) on_event(event);
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
    state.retire(state.requests.find(request));
  }
  void cancel(std::int64_t request, std::int64_t sequence) {
    State& state = opened();
    check(onward_engine_cancel_sequence(state.handle, request, sequence));
    const std::lock_guard<std::mutex> lock(state.mutex);
    const auto place = state.requests.find(request);
    if (place == state.requests.end()) return;
    if (sequence >= 0 && sequence < place->second.sequences) place->second.ended.insert(sequence);
    // The last one takes the request with it, without an event.
    if (static_cast<std::int64_t>(place->second.ended.size()) >= place->second.sequences) {
      state.retire(place);
    }
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

  // Without metadata where the engine is Python's.
  Model model() const {
    onward_model model = nullptr;
    check(onward_engine_model(opened().handle, &model));
    return Model::from_handle(model);
  }

  onward_engine handle() const noexcept { return state_ == nullptr ? nullptr : state_->handle; }

 private:
  static constexpr std::size_t kEventsAtMost = 128;  // of one step(); the rest comes with the next

  // A request that has not ended.
  struct Place {
    std::int64_t sequences = 1;
    std::set<std::int64_t> ended;
    std::unique_ptr<Request::Rules> rules;
  };
  using Places = std::map<std::int64_t, Place>;

  struct State {
    onward_engine handle = nullptr;
    std::int64_t vocab_size = 0;
    std::mutex mutex;  // of the next three; never held while the library is called
    Places requests;
    Places cancelled;                    // whose rules the step that runs now may still call
    std::set<std::int64_t> ended_early;  // in one thread's step, before another's submit was back
    std::mutex trace_mutex;
    std::unique_ptr<Trace> trace;

    void retire(Places::iterator place) {
      if (place != requests.end()) cancelled.insert(requests.extract(place));
    }
  };

  Engine() : state_(std::make_unique<State>()) {}

  State& opened() const {
    if (state_ == nullptr) throw Closed("Engine: is closed, expected an open one");
    return *state_;
  }

  // Once a call has had its turn, the steps that ran before it are over.
  static void release_cancelled(State& state) {
    Places cancelled;
    {
      const std::lock_guard<std::mutex> lock(state.mutex);
      cancelled.swap(state.cancelled);
    }
    if (cancelled.empty()) return;
    Stats stats = {};
    stats.size = sizeof(stats);
    if (onward_engine_stats(state.handle, &stats) == ONWARD_OK) return;
    const std::lock_guard<std::mutex> lock(state.mutex);
    state.cancelled.merge(cancelled);
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
