#include "engine/shared_engine.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "base/error.h"
#include "base/fork_count.h"

namespace onward {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPollInterval = std::chrono::milliseconds(50);
constexpr const char* kClosed = "engine: was closed, expected an open one";

double seconds_of(Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

}  // namespace

SharedEngine::SharedEngine(std::shared_ptr<const Model> model, std::unique_ptr<Backend> backend,
                           const EngineOptions& options, std::shared_ptr<const Model> draft)
    : engine_(std::move(model), std::move(backend), options, std::move(draft)),
      forks_(fork_count()),
      mutex_(std::make_unique<std::mutex>()) {}

void SharedEngine::reset_after_fork() {
  forks_.store(fork_count());
  if (mutex_->try_lock()) {
    mutex_->unlock();
    broken_by_fork_ = broken_by_fork_ || busy_;
  } else {  // another thread was just changing what it guards
    broken_by_fork_ = true;
    mutex_.release();  // destroying a locked mutex is undefined
    mutex_ = std::make_unique<std::mutex>();
  }
  if (broken_by_fork_) return;
  engine_.cancel_all();
  owners_.clear();
  chores_.clear();
  arrived_.clear();
  delivered_ = 0;
  for (EngineClient* client : clients_) {
    client->mail_.clear();
    client->dropped_.clear();
  }
}

bool SharedEngine::usable() {
  if (forks_.load() != fork_count()) {
    static std::mutex resetting;
    const std::lock_guard<std::mutex> guard(resetting);
    if (forks_.load() != fork_count()) reset_after_fork();
  }
  return !broken_by_fork_;
}

SharedEngine::Lock SharedEngine::enter() {
  if (!usable()) {
    throw Closed(
        "engine: this process was forked while another thread was inside the engine; load the "
        "model again in the child");
  }
  return Lock(*mutex_);
}

bool SharedEngine::take_turn(Lock& lock, EngineClient& client, bool until_mail,
                             const Poll& waiting) {
  if (inside()) {
    throw InvalidArgument(
        "engine: called by a rule or trace of its own step, expected that step to end first");
  }
  if (until_mail && !client.mail_.empty()) return false;
  if (!busy_) {
    busy_ = true;
  } else {
    Waiter self;
    self.client = &client;
    self.until_mail = until_mail;
    queue_.push_back(&self);
    const auto called = [&] { return self.granted || self.over; };
    while (!self.changed.wait_for(lock, kPollInterval, called)) {
      if (!waiting) continue;
      lock.unlock();
      try {
        waiting();
      } catch (...) {
        lock.lock();
        if (self.granted) end_turn(lock);
        queue_.erase(std::remove(queue_.begin(), queue_.end(), &self), queue_.end());
        throw;
      }
      lock.lock();
    }
    if (!self.granted) return false;
  }
  holder_ = std::this_thread::get_id();
  do_chores(lock);
  return true;
}

void SharedEngine::end_turn(Lock& lock) noexcept {
  do_chores(lock);
  wake([](const Waiter& waiter) { return waiter.until_mail && !waiter.client->mail_.empty(); });
  holder_ = {};
  busy_ = !queue_.empty();
  if (!busy_) return;
  Waiter& next = *queue_.front();
  queue_.pop_front();
  next.granted = true;
  next.changed.notify_one();  // with the lock: what waits lives no longer than its waiting
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

void SharedEngine::forget(int64_t request) noexcept {
  const auto owner = owners_.find(request);
  if (owner == owners_.end()) return;
  auto& dropped = owner->second->dropped_;
  dropped.erase(dropped.lower_bound({request, 0}), dropped.lower_bound({request + 1, 0}));
  owners_.erase(owner);
}

void SharedEngine::poke(Lock& lock) noexcept {
  if (busy_) return;
  busy_ = true;
  holder_ = std::this_thread::get_id();
  end_turn(lock);
}

void SharedEngine::wake(const std::function<bool(const Waiter&)>& who) noexcept {
  for (auto at = queue_.begin(); at != queue_.end();) {
    if (!who(**at)) {
      ++at;
      continue;
    }
    (*at)->over = true;
    (*at)->changed.notify_one();
    at = queue_.erase(at);
  }
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

// Whether the step was one: trace says what it did, where anybody wants to know.
bool SharedEngine::run_step(const Poll& poll, StepTrace& trace) {
  if (!arrived_.empty()) return false;  // left by a delivery that ran out of memory
  if (traces_.empty()) {
    arrived_ = engine_.step(poll);
    return false;
  }
  const EngineStats before = engine_.stats();
  const Clock::time_point begin = Clock::now();
  arrived_ = engine_.step(poll);
  trace.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  trace.begin = seconds_of(begin);
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

SharedEngine::Turn::Turn(SharedEngine& engine, EngineClient& client, const Poll& waiting)
    : engine_(engine), own_(engine.enter()), lock_(&own_) {
  client.require_open();
  if (!engine_.take_turn(own_, client, false, waiting)) client.require_open();
  own_.unlock();
}

SharedEngine::Turn::~Turn() {
  if (!lock_->owns_lock()) lock_->lock();
  engine_.end_turn(*lock_);
}

EngineClient::EngineClient(std::shared_ptr<SharedEngine> engine) : engine_(std::move(engine)) {
  const SharedEngine::Lock lock = engine_->enter();
  engine_->clients_.insert(this);
}

EngineClient::~EngineClient() {
  close();
  if (!engine_->usable()) return;
  const SharedEngine::Lock lock(*engine_->mutex_);
  engine_->clients_.erase(this);
}

void EngineClient::require_open() const {
  if (closed()) throw Closed(kClosed);
}

int64_t EngineClient::submit(Request request, const Poll& waiting) {
  const SharedEngine::Turn turn(*engine_, *this, waiting);
  const int64_t id = engine_->engine_.submit(std::move(request));
  const SharedEngine::Lock lock(*engine_->mutex_);
  if (closed()) {
    engine_->chores_.push_back({id});
    throw Closed(kClosed);
  }
  engine_->owners_.emplace(id, this);
  return id;
}

std::vector<Event> EngineClient::step(const Poll& poll, size_t most) {
  std::vector<Event> lost;  // destroyed without the lock
  SharedEngine::Lock lock = engine_->enter();
  require_open();
  if (!engine_->take_turn(lock, *this, true, poll)) {
    require_open();
    return take_mail(most);
  }
  const SharedEngine::Turn turn(*engine_, lock);
  lock.unlock();
  StepTrace trace;
  const bool traced = engine_->run_step(poll, trace);
  lock.lock();
  engine_->deliver(lost);
  if (traced) {
    lock.unlock();
    for (const auto& [client, tell] : engine_->traces_) tell(trace);
    lock.lock();
  }
  require_open();
  return take_mail(most);
}

std::vector<Event> EngineClient::take_mail(size_t most) {
  const auto count = static_cast<std::ptrdiff_t>(std::min(most, mail_.size()));
  std::vector<Event> events;
  events.reserve(static_cast<size_t>(count));
  std::move(mail_.begin(), mail_.begin() + count, std::back_inserter(events));
  mail_.erase(mail_.begin(), mail_.begin() + count);
  return events;
}

bool EngineClient::expects() const {
  const SharedEngine::Lock lock = engine_->enter();
  // Somebody else's step may have brought the last ones.
  return !mail_.empty() || std::any_of(engine_->owners_.begin(), engine_->owners_.end(),
                                       [this](const auto& owner) { return owner.second == this; });
}

void EngineClient::give_back(std::vector<Event> events) {
  const SharedEngine::Lock lock = engine_->enter();
  for (; !events.empty(); events.pop_back()) mail_.push_front(std::move(events.back()));
}

std::vector<Event> EngineClient::purge(const std::function<bool(const Event&)>& matches) {
  std::vector<Event> gone;
  const auto keeps = [&](const Event& event) { return !matches(event); };
  const auto first = std::stable_partition(mail_.begin(), mail_.end(), keeps);
  std::move(first, mail_.end(), std::back_inserter(gone));
  mail_.erase(first, mail_.end());
  return gone;
}

void EngineClient::pass_on_end(int64_t request) {
  const auto last = std::find_if(mail_.rbegin(), mail_.rend(),
                                 [&](const Event& event) { return event.request == request; });
  if (last != mail_.rend()) last->ends_request = true;
}

void EngineClient::cancel(int64_t request) {
  std::vector<Event> lost;
  SharedEngine::Lock lock = engine_->enter();
  lost = purge([&](const Event& event) { return event.request == request; });
  const auto owner = engine_->owners_.find(request);
  if (owner == engine_->owners_.end() || owner->second != this) return;
  engine_->chores_.push_back({request});
  engine_->forget(request);
  engine_->poke(lock);
}

void EngineClient::cancel(int64_t request, int64_t sequence) {
  std::vector<Event> lost;
  SharedEngine::Lock lock = engine_->enter();
  lost = purge(
      [&](const Event& event) { return event.request == request && event.sequence == sequence; });
  if (std::any_of(lost.begin(), lost.end(), [](const Event& e) { return e.ends_request; })) {
    pass_on_end(request);
  }
  const auto owner = engine_->owners_.find(request);
  if (sequence < 0 || owner == engine_->owners_.end() || owner->second != this) return;
  dropped_.insert({request, sequence});
  engine_->chores_.push_back({request, sequence});
  engine_->poke(lock);
}

std::vector<Event> EngineClient::give_up(SharedEngine::Lock& lock) {
  for (auto at = engine_->owners_.begin(); at != engine_->owners_.end();) {
    if (at->second != this) {
      ++at;
      continue;
    }
    engine_->chores_.push_back({at->first});
    at = engine_->owners_.erase(at);
  }
  dropped_.clear();
  std::vector<Event> lost = purge([](const Event&) { return true; });
  engine_->poke(lock);
  return lost;
}

void EngineClient::close() {
  if (closed_.exchange(true) || !engine_->usable()) return;
  std::vector<Event> lost;
  SharedEngine::Lock lock = engine_->enter();
  engine_->wake([this](const SharedEngine::Waiter& waiter) { return waiter.client == this; });
  engine_->chores_.push_back({-1, -1, this});
  lost = give_up(lock);
}

void EngineClient::wait_for_step() {
  SharedEngine::Lock lock = engine_->enter();
  if (!engine_->busy_ || engine_->inside()) return;
  if (engine_->take_turn(lock, *this, false, nullptr)) engine_->end_turn(lock);
}

void EngineClient::set_trace(SharedEngine::Trace trace, const Poll& waiting) {
  const SharedEngine::Turn turn(*engine_, *this, waiting);
  if (trace) {
    engine_->traces_[this] = std::move(trace);
  } else {
    engine_->traces_.erase(this);
  }
}

}  // namespace onward
