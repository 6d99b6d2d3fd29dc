// One engine for several clients, from any thread. A client has requests of its own and a mailbox
// for their events; a step that any of them runs is a step for all. Whoever wants the engine takes
// turns, first come, first served; who only waits for events goes away as soon as some are there.
// Knows neither Python nor C, and starts no thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/engine.h"

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

class EngineClient;

class SharedEngine {
 public:
  // Called by a client that waits for its turn, every 50 ms, and between the verbs of what it
  // computes. May throw to give up; may be empty where there is nothing to compute.
  using Poll = Decoder::Poll;
  using Trace = std::function<void(const StepTrace&)>;

  SharedEngine(std::shared_ptr<const Model> model, std::unique_ptr<Backend> backend,
               const EngineOptions& options, std::shared_ptr<const Model> draft = nullptr);
  SharedEngine(const SharedEngine&) = delete;
  SharedEngine& operator=(const SharedEngine&) = delete;

  // For what never changes: its model and backend.
  const Engine& engine() const { return engine_; }

  // In a forked child: the parent's requests are not the child's, and a turn that another thread
  // had never ends: then every later use is an error. A child that is used without this call does
  // it by itself.
  void reset_after_fork();

 private:
  friend class EngineClient;
  using Lock = std::unique_lock<std::mutex>;

  struct Waiter {
    EngineClient* client = nullptr;
    bool until_mail = false;
    bool granted = false;  // has the turn
    bool over = false;     // has no need of it any more
    std::condition_variable changed;
  };
  // What is done to the engine by whoever has the turn next.
  struct Chore {
    int64_t request = -1;
    int64_t sequence = -1;               // -1: the whole request
    const EngineClient* gone = nullptr;  // its trace goes
    bool ended = false;                  // the request, with its last sequence
  };
  // The turn, given back at the end of a scope.
  class Turn {
   public:
    Turn(SharedEngine& engine, EngineClient& client, const Poll& waiting);
    Turn(SharedEngine& engine, Lock& lock) : engine_(engine), lock_(&lock) {}  // is taken already
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    SharedEngine& engine_;
    Lock own_;
    Lock* lock_;
  };

  // False in a child whose parent forked at the wrong moment.
  bool usable();
  // Closed in such a child.
  Lock enter();
  // False where until_mail and the client has mail.
  bool take_turn(Lock& lock, EngineClient& client, bool until_mail, const Poll& waiting);
  void end_turn(Lock& lock) noexcept;
  void do_chores(Lock& lock) noexcept;
  // A request has ended.
  void forget(int64_t request) noexcept;
  // Has the chores done, now or at the end of the present turn.
  void poke(Lock& lock) noexcept;
  void wake(const std::function<bool(const Waiter&)>& who) noexcept;
  // Sorts what has arrived into mailboxes; what nobody wants goes to `lost`, to be destroyed
  // without the lock.
  void deliver(std::vector<Event>& lost);
  bool run_step(const Poll& poll, StepTrace& trace);
  bool inside() const { return busy_ && holder_ == std::this_thread::get_id(); }

  // Used by whoever has the turn.
  Engine engine_;
  std::unordered_map<const EngineClient*, Trace> traces_;

  std::atomic<unsigned> forks_;
  std::unique_ptr<std::mutex> mutex_;  // guards what follows and every client's mailbox; held
                                       // shortly, and never while anything is called or destroyed
  bool broken_by_fork_ = false;
  bool busy_ = false;  // somebody has the turn
  std::thread::id holder_;
  std::deque<Waiter*> queue_;
  std::set<EngineClient*> clients_;
  std::unordered_map<int64_t, EngineClient*> owners_;  // of requests that have not ended
  std::vector<Chore> chores_;
  std::vector<Event> arrived_;  // not yet delivered
  size_t delivered_ = 0;        // of them
};

// One caller's place in a shared engine. May be used from several threads: each event is handed out
// once. Everything but what closes or gives up throws Closed once it is closed.
class EngineClient {
 public:
  using Poll = SharedEngine::Poll;
  static constexpr size_t kAll = std::numeric_limits<size_t>::max();

  explicit EngineClient(std::shared_ptr<SharedEngine> engine);
  ~EngineClient();  // as close()
  EngineClient(const EngineClient&) = delete;
  EngineClient& operator=(const EngineClient&) = delete;

  const std::shared_ptr<SharedEngine>& shared() const { return engine_; }

  // As Engine's; ids are never the same in one engine.
  int64_t submit(Request request, const Poll& waiting);

  // The client's events in order, `most` at most. Runs a step first, for everybody, if there are
  // none. A step that is given up loses no event of anybody.
  std::vector<Event> step(const Poll& poll, size_t most = kAll);
  // Whether events of its requests are still to be handed out.
  bool expects() const;
  // Events that step has handed out and that could not be used: the next step hands them out again.
  void give_back(std::vector<Event> events);

  // No event of the request, or of one of its sequences, follows. Requests of others are left
  // alone. Waits for nobody: a step that runs now goes on to call the request's rules.
  void cancel(int64_t request);
  void cancel(int64_t request, int64_t sequence);
  // Gives up all requests; whoever waits in this client hears Closed.
  void close();
  bool closed() const { return closed_.load(std::memory_order_relaxed); }
  // Returns when the step that runs now has ended; at once inside that very step.
  void wait_for_step();

  // Whom every step of the engine is told to, whoever runs it, by the thread that ran it; null:
  // nobody. What was there before is not called once this returns.
  void set_trace(SharedEngine::Trace trace, const Poll& waiting);

  // body(engine), between two steps.
  template <typename Body>
  auto alone(const Poll& waiting, const Body& body) {
    const SharedEngine::Turn turn(*engine_, *this, waiting);
    return body(engine_->engine_);
  }

 private:
  friend class SharedEngine;

  bool drops(const Event& event) const {
    return dropped_.count({event.request, event.sequence}) > 0;
  }
  // Moves the events that match out of the mailbox.
  std::vector<Event> purge(const std::function<bool(const Event&)>& matches);
  std::vector<Event> take_mail(size_t most);
  // Its last event in the mailbox, if any, now says that it has ended.
  void pass_on_end(int64_t request);
  std::vector<Event> give_up(SharedEngine::Lock& lock);
  void require_open() const;

  std::shared_ptr<SharedEngine> engine_;
  std::atomic<bool> closed_{false};
  // Guarded by the engine's mutex.
  std::deque<Event> mail_;
  std::set<std::pair<int64_t, int64_t>> dropped_;  // sequences of requests that have not ended
};

}  // namespace onward
