#include "engine/shared_engine.h"

#include <utility>

#include "base/error.h"
#include "base/fork_count.h"
#include "engine/engine_client.h"

namespace onward {

SharedEngine::SharedEngine(std::shared_ptr<const Model> model, std::unique_ptr<Backend> backend,
                           const EngineOptions& options, std::shared_ptr<const Model> draft)
    : engine_(std::move(model), std::move(backend), options, std::move(draft)),
      forks_(fork_count()),
      mutex_(std::make_unique<std::mutex>()) {}

// Taking turns

SharedEngine::Lock SharedEngine::enter() {
  if (!usable()) {
    throw Closed(
        "engine: this process was forked while another thread was inside the engine; load the "
        "model again in the child");
  }
  return Lock(*mutex_);
}

bool SharedEngine::take_turn(Lock& lock, EngineClient& client, TurnFor purpose,
                             const Interrupts& interrupts) {
  if (inside()) {
    throw InvalidArgument(
        "engine: called by a rule or trace of its own step, or by a signal handler in it, expected "
        "that step to end first");
  }
  if (purpose != TurnFor::engine && !client.mail_.empty()) return false;
  if (busy_) {
    TurnQueue::Waiter self(&client, purpose);
    queue_.join(self);
    if (!wait_for_turn(lock, self, interrupts)) return false;
  }
  busy_ = true;
  holder_ = std::this_thread::get_id();
  do_chores(lock);
  return true;
}

bool SharedEngine::wait_for_turn(Lock& lock, TurnQueue::Waiter& self,
                                 const Interrupts& interrupts) {
  const auto called = [&self] { return self.granted || self.over || self.nudged; };
  const bool timed = interrupts.waiting && interrupts.interval.count() > 0;
  for (;;) {
    if (timed) {
      self.changed.wait_for(lock, interrupts.interval, called);
    } else {
      self.changed.wait(lock, called);
    }
    if (self.granted || self.over) return self.granted;
    self.nudged = false;
    if (!interrupts.waiting) continue;
    // It may run a signal handler that uses the engine: the turn must not come here meanwhile.
    self.away = true;
    lock.unlock();
    try {
      interrupts.waiting();
    } catch (...) {
      lock.lock();
      queue_.leave(self);
      throw;
    }
    lock.lock();
    self.away = false;
    if (self.over) return false;
    if (busy_) continue;
    queue_.leave(self);
    return true;
  }
}

void SharedEngine::end_turn(Lock& lock) noexcept {
  settle(lock);
  holder_ = {};
  TurnQueue::Waiter* next = queue_.next();
  busy_ = next != nullptr;
  if (next == nullptr) return;
  next->granted = true;
  next->changed.notify_one();  // with the lock: the waiter is gone when its wait has ended
}

void SharedEngine::nudge() {
  if (!usable()) return;
  const Lock lock(*mutex_);
  queue_.nudge();
}

SharedEngine::Turn::Turn(SharedEngine& engine, EngineClient& client, const Interrupts& interrupts)
    : engine_(engine), own_(engine.enter()), lock_(&own_) {
  client.require_open();
  if (!engine_.take_turn(own_, client, TurnFor::engine, interrupts)) client.require_open();
  own_.unlock();
}

SharedEngine::Turn::~Turn() {
  if (!lock_->owns_lock()) lock_->lock();
  engine_.end_turn(*lock_);
}

// Steps

void SharedEngine::step(Lock& lock, const Poll& poll) {
  std::vector<Event> lost;
  StepTrace trace;
  lock.unlock();
  const bool traced = compute(poll, trace);
  lock.lock();
  deliver(lost);
  if (traced || !lost.empty()) {
    lock.unlock();
    lost.clear();
    if (traced) {
      for (const auto& [client, tell] : traces_) tell(trace);
    }
    lock.lock();
  }
}

// Whether the step did anything that a trace wants to hear of; `trace` says what.
bool SharedEngine::compute(const Poll& poll, StepTrace& trace) {
  if (!arrived_.empty()) return false;  // left by a delivery that ran out of memory
  if (traces_.empty()) {
    arrived_ = engine_.step(poll);
    return false;
  }
  const EngineStats before = engine_.stats();
  const Clock::time_point begin = Clock::now();
  arrived_ = engine_.step(poll);
  trace.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  trace.begin = std::chrono::duration<double>(begin.time_since_epoch()).count();
  const EngineStats after = engine_.stats();
  trace.step = after.steps;
  trace.prefill_tokens = after.prefill_tokens - before.prefill_tokens;
  trace.decode_tokens = after.decode_tokens - before.decode_tokens;
  trace.events = static_cast<int64_t>(arrived_.size());
  trace.running = after.running;
  trace.waiting = after.waiting;
  trace.cache_bytes = after.cache_bytes;
  return after.steps > before.steps || !arrived_.empty();
}

void SharedEngine::deliver(std::vector<Event>& lost) {
  for (; delivered_ < arrived_.size(); ++delivered_) {
    Event& event = arrived_[delivered_];
    const int64_t request = event.request;
    const bool ends = event.ends_request;
    const auto owner = owners_.find(request);
    if (owner == owners_.end()) {
      if (!ends) chores_.push_back({request});
      lost.push_back(std::move(event));
      continue;
    }
    EngineClient& client = *owner->second;
    const bool dropped = client.drops(event);
    if (dropped) {
      lost.push_back(std::move(event));
    } else {
      client.mail_.push_back(std::move(event));
    }
    if (!ends) continue;
    if (dropped) client.pass_on_end(request);
    forget(request);
  }
  arrived_.clear();
  delivered_ = 0;
}

// Between two steps: cancels what was given up and wakes the callers that have got events.
void SharedEngine::settle(Lock& lock) noexcept {
  do_chores(lock);
  queue_.dismiss([](const TurnQueue::Waiter& waiter) {
    const bool reads = waiter.purpose == TurnFor::events || waiter.purpose == TurnFor::step;
    return reads && !waiter.client->mail_.empty();
  });
}

void SharedEngine::do_chores(Lock& lock) noexcept {
  while (!chores_.empty()) {
    std::vector<Chore> chores = std::exchange(chores_, {});
    lock.unlock();
    for (Chore& chore : chores) {
      try {
        if (chore.gone != nullptr) traces_.erase(chore.gone);
        if (chore.request < 0) continue;
        if (chore.sequence < 0) engine_.cancel(chore.request);
        chore.ended = chore.sequence >= 0 && engine_.cancel(chore.request, chore.sequence);
      } catch (...) {
        // Out of memory. The request's next event has no owner, which brings the chore again.
      }
    }
    lock.lock();
    for (const Chore& chore : chores) {
      if (chore.ended) forget(chore.request);
    }
  }
}

void SharedEngine::poke(Lock& lock) noexcept {
  if (busy_) return;
  busy_ = true;
  holder_ = std::this_thread::get_id();
  end_turn(lock);
}

void SharedEngine::forget(int64_t request) noexcept {
  const auto owner = owners_.find(request);
  if (owner == owners_.end()) return;
  auto& dropped = owner->second->dropped_;
  dropped.erase(dropped.lower_bound({request, 0}), dropped.lower_bound({request + 1, 0}));
  --owner->second->running_;
  owners_.erase(owner);
}

// Forks

bool SharedEngine::hold_for_fork(Clock::time_point deadline) {
  if (!usable()) return false;
  Lock lock(*mutex_);
  if (inside()) return false;
  if (busy_) {
    TurnQueue::Waiter self(nullptr, TurnFor::fork);
    queue_.join(self);
    const auto granted = [&self] { return self.granted; };
    if (!self.changed.wait_until(lock, deadline, granted)) {
      queue_.leave(self);
      return false;
    }
  }
  busy_ = true;
  holder_ = std::this_thread::get_id();
  return true;
}

void SharedEngine::lock_for_fork() {
  mutex_->lock();
  locked_for_fork_ = true;
}

void SharedEngine::release_after_fork() {
  Lock lock(*mutex_, std::adopt_lock);
  locked_for_fork_ = false;
  end_turn(lock);
}

void SharedEngine::reset_after_fork() {
  forks_.store(fork_count());
  if (locked_for_fork_) {  // by this thread: the engine is between two steps
    locked_for_fork_ = busy_ = false;
    mutex_->unlock();
  } else if (mutex_->try_lock()) {
    mutex_->unlock();
    broken_by_fork_ = broken_by_fork_ || busy_;
  } else {  // another thread was just changing what it guards
    broken_by_fork_ = true;
    mutex_.release();  // destroying a locked mutex is undefined
    mutex_ = std::make_unique<std::mutex>();
  }
  if (broken_by_fork_) return;
  queue_.clear();  // the threads that waited are the parent's
  engine_.cancel_all();
  owners_.clear();
  chores_.clear();
  arrived_.clear();
  delivered_ = 0;
  for (EngineClient* client : clients_) client->disinherit();
}

bool SharedEngine::usable() {
  if (forks_.load() != fork_count()) {
    static std::mutex resetting;
    const std::lock_guard<std::mutex> guard(resetting);
    if (forks_.load() != fork_count()) reset_after_fork();
  }
  return !broken_by_fork_;
}

}  // namespace onward
