// Part of onward/onward.h: the engine. It has no thread of its own. A call of step() computes the
// next step for all requests, and returns the events of the requests that were submitted here.
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

// The fields of onward_engine_options. The names of codecs are std::strings.
struct EngineOptions : onward_engine_options {
  EngineOptions() noexcept : onward_engine_options() { onward_engine_options_init(this); }
  std::string kv_keys;    // "": the default; otherwise "exact", "int8", "q4_0", "turbo4"...
  std::string kv_values;  // the same
};

// An engine. It can be moved and closes itself. Any thread may call it at any time, except for
// moving, close() and the destructor, which need exclusive use. A signal handler may call
// interrupt(). A moved-from engine is closed.
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

  // Takes over a handle, given as a number. LLM.engine_handle() of Python returns such a number.
  static Engine from_handle(std::uintptr_t handle) {
    Engine engine;
    engine.state_->handle = reinterpret_cast<onward_engine>(handle);
    engine.state_->vocab_size = engine.model().info().vocab_size;
    return engine;
  }

  // Makes another Engine for the same engine, with its own requests and events, for example for
  // another thread.
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

  // Cancels the requests that were submitted here. Other handles of the engine continue. Do not
  // call it inside a rule or a trace, because it destroys them.
  void close() noexcept {
    if (state_ == nullptr) return;
    onward_engine_close(state_->handle);
    state_.reset();  // the engine, which calls the rules, is closed first
  }

  // Submits a request and returns the id that its events carry. Rules are kept until the request
  // ends.
  std::int64_t submit(const Request& request) {
    State& state = opened();
    Place place;
    place.sequences = request.num_sequences();
    if (request.score_rule_ || request.end_rule_) {
      place.rules.reset(new Request::Rules{request.score_rule_, request.end_rule_, nullptr});
    }
    // Allocate before the library has the rules, so that no exception can follow.
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

  // Runs one step for all handles, unless events of an earlier step are left. Returns the events of
  // the requests that were submitted here, in order. The result is empty if there is nothing to do,
  // if a prompt is still being read, or if another handle ran the step. Throws Interrupted after
  // interrupt(); nothing is lost, and the next step starts again.
  std::vector<Event> step() {
    State& state = opened();
    std::array<onward_event, kEventsAtMost> raw;
    std::size_t count = 0;
    check(onward_engine_step(state.handle, raw.data(), sizeof(onward_event), raw.size(), &count));
    std::vector<Event> events;
    events.reserve(count);
    for (std::size_t i = 0; i < count; ++i) events.emplace_back(raw[i]);
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

  // Runs steps until every request that was submitted here has ended, and calls on_event for each
  // event.
  void run(const std::function<void(const Event&)>& on_event) {
    while (active() > 0) {
      for (const Event& event : step()) on_event(event);
    }
  }

  // The number of requests that were submitted here and have not ended.
  std::size_t active() const {
    State& state = opened();
    const std::lock_guard<std::mutex> lock(state.mutex);
    return state.requests.size();
  }

  // Cancels a request or one of its sequences; no event of it follows. A request that is unknown or
  // has ended is not changed.
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
    // Cancelling the last sequence ends the request without an event.
    if (static_cast<std::int64_t>(place->second.ended.size()) >= place->second.sequences) {
      state.retire(place);
    }
  }

  // Ends the running step, or otherwise the next one, within one layer with Interrupted.
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

  // Sets a function that is called after each step of any handle, on the thread that ran the step.
  // An empty function removes it. The trace must not call the engine; its exceptions are dropped.
  void set_trace(Trace trace) {
    State& state = opened();
    auto next = trace ? std::make_unique<Trace>(std::move(trace)) : nullptr;
    const std::lock_guard<std::mutex> lock(state.trace_mutex);
    check(onward_engine_set_trace(state.handle, next ? &call_trace : nullptr, next.get()));
    state.trace = std::move(next);  // the library does not call the previous trace any more
  }

  // The model of the engine. It has no metadata if the engine belongs to Python.
  Model model() const {
    onward_model model = nullptr;
    check(onward_engine_model(opened().handle, &model));
    return Model::from_handle(model);
  }

  onward_engine handle() const noexcept { return state_ == nullptr ? nullptr : state_->handle; }

 private:
  static constexpr std::size_t kEventsAtMost = 128;  // of one step(); the next returns the rest

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
    std::mutex mutex;  // protects the next three; never held while the library is called
    Places requests;
    Places cancelled;  // requests whose rules the running step may still call
    // Requests that ended in a step of one thread before submit() returned in another.
    std::set<std::int64_t> ended_early;
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

  // Destroys the rules of cancelled requests. A call that needs the engine waits for the running
  // step, so after such a call no step can call these rules.
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
    } catch (...) {  // a trace only watches, so its exception does not undo the step
    }
  }

  std::unique_ptr<State> state_;
};

}  // namespace v1
}  // namespace onward
