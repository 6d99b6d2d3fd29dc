// One engine for several clients (engine_client.h), from any thread. It starts no thread: a client
// that waits for events runs the next step, for all clients. Clients take turns at the engine in
// the order of arrival, except that work between two steps, such as a submission, goes before
// steps.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/turn_queue.h"

namespace onward {

// What one step did.
struct StepTrace {
  int64_t step = 0;  // steps of the engine so far, this one included
  int64_t prefill_tokens = 0;
  int64_t decode_tokens = 0;
  int64_t events = 0;  // of all clients
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t cache_bytes = 0;
  double begin = 0;  // seconds of the steady clock
  double seconds = 0;
};

// How a caller can end its own wait or computation early: both functions may throw, and both may be
// empty.
struct Interrupts {
  using Poll = Decoder::Poll;

  Interrupts() = default;
  Interrupts(const Poll& poll) : computing(poll), waiting(poll) {}  // NOLINT: a poll is enough

  Poll computing;  // called between the verbs of every layer
  Poll waiting;    // called while the caller waits for its turn, without a lock
  std::chrono::milliseconds interval{50};  // between two calls of `waiting`; 0: only after nudge()
};

class SharedEngine {
 public:
  using Clock = std::chrono::steady_clock;
  using Poll = Interrupts::Poll;
  using Trace = std::function<void(const StepTrace&)>;

  SharedEngine(std::shared_ptr<const Model> model, std::unique_ptr<Backend> backend,
               const EngineOptions& options, std::shared_ptr<const Model> draft = nullptr);
  SharedEngine(const SharedEngine&) = delete;
  SharedEngine& operator=(const SharedEngine&) = delete;

  // For the parts that never change: its model and backend.
  const Engine& engine() const { return engine_; }

  // Makes every caller that waits for a turn call its Interrupts::waiting.
  void nudge();

  // A fork of the process, in three parts, all on the thread that forks. hold_for_fork() waits for
  // the present step and keeps the turn; false where that step does not end before the deadline, or
  // is this thread's own. Then lock_for_fork(), the fork, and release_after_fork() in the parent.
  bool hold_for_fork(Clock::time_point deadline);
  void lock_for_fork();
  void release_after_fork();
  // In a forked child: gives up the requests of the parent. Where the fork fell into a turn of
  // another thread, that turn never ends, and every later use throws Closed. A child that uses the
  // engine without this call makes it then.
  void reset_after_fork();

 private:
  friend class EngineClient;
  using Lock = std::unique_lock<std::mutex>;

  // Work on the engine that the next holder of the turn does.
  struct Chore {
    int64_t request = -1;
    int64_t sequence = -1;               // -1: cancel the whole request
    const EngineClient* gone = nullptr;  // its trace is removed
    bool ended = false;                  // the request ended with its last sequence
  };
  // The turn, given back at the end of a scope.
  class Turn {
   public:
    Turn(SharedEngine& engine, EngineClient& client, const Interrupts& interrupts);
    Turn(SharedEngine& engine, Lock& lock) : engine_(engine), lock_(&lock) {}  // is taken already
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    SharedEngine& engine_;
    Lock own_;
    Lock* lock_;
  };

  // False in a child whose parent forked during a step of another thread.
  bool usable();
  // Throws Closed in such a child.
  Lock enter();

  // False where the client got events meanwhile, or was closed.
  bool take_turn(Lock& lock, EngineClient& client, TurnFor purpose, const Interrupts& interrupts);
  bool wait_for_turn(Lock& lock, TurnQueue::Waiter& self, const Interrupts& interrupts);
  void end_turn(Lock& lock) noexcept;
  bool inside() const { return busy_ && holder_ == std::this_thread::get_id(); }

  // With the turn: one step for all clients, whose events are delivered. The lock is free
  // meanwhile.
  void step(Lock& lock, const Poll& poll);
  bool compute(const Poll& poll, StepTrace& trace);
  // Moves what has arrived to the clients. Events without an owner go to `lost`, to be destroyed
  // without the lock.
  void deliver(std::vector<Event>& lost);
  void settle(Lock& lock) noexcept;
  void do_chores(Lock& lock) noexcept;
  // Has the chores done, now or at the end of the present step.
  void poke(Lock& lock) noexcept;
  // A request has ended.
  void forget(int64_t request) noexcept;

  // Used by the holder of the turn.
  Engine engine_;
  std::unordered_map<const EngineClient*, Trace> traces_;

  std::atomic<unsigned> forks_;
  // Guards all that follows and every client's mailbox. It is held for short moments only, and
  // never while anything is called or destroyed.
  std::unique_ptr<std::mutex> mutex_;
  bool locked_for_fork_ = false;
  bool broken_by_fork_ = false;
  bool busy_ = false;  // a caller has the turn
  std::thread::id holder_;
  TurnQueue queue_;
  std::set<EngineClient*> clients_;
  std::unordered_map<int64_t, EngineClient*> owners_;  // of requests that have not ended
  std::vector<Chore> chores_;
  std::vector<Event> arrived_;  // not yet delivered
  size_t delivered_ = 0;        // how many of them are
};

}  // namespace onward
