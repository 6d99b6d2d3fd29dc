// One caller's place in a shared engine: its requests, and the mailbox where their events arrive.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/shared_engine.h"

namespace onward {

// May be used from several threads: each event is handed out once. Everything but closing and
// cancelling throws Closed once the client is closed.
class EngineClient {
 public:
  static constexpr size_t kAll = std::numeric_limits<size_t>::max();
  static constexpr const char* kClosed = "engine: was closed, expected an open one";

  explicit EngineClient(std::shared_ptr<SharedEngine> engine);
  ~EngineClient();  // as close()
  EngineClient(const EngineClient&) = delete;
  EngineClient& operator=(const EngineClient&) = delete;

  const std::shared_ptr<SharedEngine>& shared() const { return engine_; }

  // As Engine::submit. No two requests of an engine have the same id.
  int64_t submit(Request request, const Interrupts& interrupts);
  // All requests before the next step, or none where one of them cannot be served.
  std::vector<int64_t> submit(std::vector<Request> requests, const Interrupts& interrupts);

  // The next event of any of its requests. Runs steps, for all clients, until there is one; other
  // callers get the engine between two of them. Error where none can come.
  Event next_event(const Interrupts& interrupts);
  // The next event if it has arrived. Waits for nothing, and may miss one that just arrives.
  std::optional<Event> arrived_event();

  // The client's events in order, at most `most`. Runs one step first, for all clients, if there
  // are none. A step that is given up loses no event.
  std::vector<Event> step(const Interrupts& interrupts, size_t most = kAll);
  // Events that step has handed out and that could not be used: the next step hands them out again.
  void give_back(std::vector<Event> events);

  // No event of the request, or of one of its sequences, follows. Requests of other clients are
  // left alone. Waits for nothing: a step that runs now goes on to call the request's rules.
  void cancel(int64_t request);
  void cancel(int64_t request, int64_t sequence);
  // Gives up all requests. Callers that wait in this client get Closed, with `reason`, which must
  // be a literal.
  void close(const char* reason = kClosed);
  bool closed() const { return closed_.load(std::memory_order_relaxed) != nullptr; }
  // Returns when the step that runs now has ended; at once inside that very step.
  void wait_for_step();

  // A function that gets every step of the engine, whichever client runs it, on the thread that ran
  // it; null for none. The function that was there before is not called once this returns.
  void set_trace(SharedEngine::Trace trace, const Interrupts& interrupts);

  // body(engine), between two steps.
  template <typename Body>
  auto alone(const Interrupts& interrupts, const Body& body) {
    const SharedEngine::Turn turn(*engine_, *this, interrupts);
    return body(engine_->engine_);
  }

 private:
  friend class SharedEngine;

  bool drops(const Event& event) const {
    return dropped_.count({event.request, event.sequence}) > 0;
  }
  // Removes the events that match from the mailbox.
  std::vector<Event> purge(const std::function<bool(const Event&)>& matches);
  Event take_first();
  std::vector<Event> take_mail(size_t most);
  // Whether events are still to come, and none is there.
  bool waits() const { return mail_.empty() && running_ > 0 && !closed(); }
  // The request's last event in the mailbox, if any, now says that it has ended.
  void pass_on_end(int64_t request);
  // Its requests were the parent's, in a forked child.
  void disinherit();
  void require_open() const;
  void require_expected() const;

  std::shared_ptr<SharedEngine> engine_;
  std::atomic<const char*> closed_{nullptr};  // why
  // Guarded by the engine's mutex.
  std::deque<Event> mail_;
  std::set<std::pair<int64_t, int64_t>> dropped_;  // sequences of requests that have not ended
  int64_t running_ = 0;                            // requests that have not ended
  bool inherited_ = false;                         // it had requests when the process was forked
};

}  // namespace onward
