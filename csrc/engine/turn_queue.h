// The callers that wait for a turn at one engine, and the order in which they get it. Not
// thread-safe: the mutex of the shared engine guards it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>

namespace onward {

class EngineClient;

// What a caller wants a turn for.
enum class TurnFor : uint8_t {
  events,  // events of its own; another caller's step may bring them
  step,    // one step, or events of its own
  engine,  // work between two steps, such as a submission
  fork,    // to keep the engine between two steps while the process forks
};

class TurnQueue {
 public:
  // A caller that waits. It lies on the stack of its thread.
  struct Waiter {
    Waiter(const EngineClient* owner, TurnFor wanted) : client(owner), purpose(wanted) {}

    const EngineClient* client;  // null for a fork
    TurnFor purpose;
    bool granted = false;  // it has the turn
    bool over = false;     // it needs no turn any more
    bool nudged = false;   // it must poll now
    bool away = false;     // it polls, and can take no turn meanwhile
    uint64_t ticket = 0;
    std::condition_variable changed;
  };

  void join(Waiter& waiter);
  void leave(Waiter& waiter);
  void clear() { waiters_.clear(); }
  // Removes and returns the waiter whose turn is next; null if none can take it.
  Waiter* next();
  // Whether any waiter needs a turn of its own, and not only events.
  bool needs_turn() const;
  // Removes the waiters that match and wakes them without a turn.
  void dismiss(const std::function<bool(const Waiter&)>& matches);
  // Makes every waiter poll.
  void nudge();

 private:
  std::deque<Waiter*> waiters_;  // in the order of arrival
  uint64_t tickets_ = 0;
  // Work between steps goes first, so that a new request joins the next step. To let steps go on
  // nevertheless, a series of such turns ends with the waiters that were there when it began.
  bool series_open_ = false;
  uint64_t series_end_ = 0;  // a ticket
};

}  // namespace onward
