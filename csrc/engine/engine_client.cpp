#include "engine/engine_client.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace onward {
namespace {

constexpr const char* kNothingToRun =
    "engine: has nothing to run, expected an event for a request that is open";

}  // namespace

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
  if (const char* reason = closed_.load(std::memory_order_relaxed)) throw Closed(reason);
}

void EngineClient::require_expected() const {
  if (inherited_) {
    throw Error("stream: belongs to the parent process, expected one of this process");
  }
  if (running_ == 0) throw Error(kNothingToRun);
}

int64_t EngineClient::submit(Request request, const Interrupts& interrupts) {
  std::vector<Request> one;
  one.push_back(std::move(request));
  return submit(std::move(one), interrupts).front();
}

std::vector<int64_t> EngineClient::submit(std::vector<Request> requests,
                                          const Interrupts& interrupts) {
  const SharedEngine::Turn turn(*engine_, *this, interrupts);
  Engine& engine = engine_->engine_;
  std::vector<int64_t> ids;
  const auto take_back = [&] {
    for (const int64_t id : ids) engine.cancel(id);
  };
  ids.reserve(requests.size());
  try {
    for (Request& request : requests) ids.push_back(engine.submit(std::move(request)));
  } catch (...) {
    take_back();
    throw;
  }
  SharedEngine::Lock lock(*engine_->mutex_);
  if (closed()) {
    lock.unlock();
    take_back();
    require_open();
  }
  for (const int64_t id : ids) {
    engine_->owners_.emplace(id, this);
    ++running_;
  }
  return ids;
}

Event EngineClient::next_event(const Interrupts& interrupts) {
  SharedEngine::Lock lock = engine_->enter();
  for (;;) {
    require_open();
    if (!mail_.empty()) return take_first();
    require_expected();
    if (!engine_->take_turn(lock, *this, TurnFor::events, interrupts)) continue;
    const SharedEngine::Turn turn(*engine_, lock);
    bool idle = false;
    do {  // steps that serve every caller that only wants events
      engine_->step(lock, interrupts.computing);
      engine_->settle(lock);
      idle = engine_->engine_.idle();
    } while (waits() && !idle && !engine_->queue_.needs_turn());
    if (waits() && idle) throw Error(kNothingToRun);
  }
}

std::optional<Event> EngineClient::arrived_event() {
  if (closed() || !engine_->usable()) return std::nullopt;
  const SharedEngine::Lock lock(*engine_->mutex_, std::try_to_lock);
  if (!lock.owns_lock() || mail_.empty()) return std::nullopt;
  return take_first();
}

std::vector<Event> EngineClient::step(const Interrupts& interrupts, size_t most) {
  SharedEngine::Lock lock = engine_->enter();
  require_open();
  if (!engine_->take_turn(lock, *this, TurnFor::step, interrupts)) {
    require_open();
    return take_mail(most);
  }
  const SharedEngine::Turn turn(*engine_, lock);
  engine_->step(lock, interrupts.computing);
  require_open();
  return take_mail(most);
}

Event EngineClient::take_first() {
  Event event = std::move(mail_.front());
  mail_.pop_front();
  return event;
}

std::vector<Event> EngineClient::take_mail(size_t most) {
  const auto count = static_cast<std::ptrdiff_t>(std::min(most, mail_.size()));
  std::vector<Event> events;
  events.reserve(static_cast<size_t>(count));
  std::move(mail_.begin(), mail_.begin() + count, std::back_inserter(events));
  mail_.erase(mail_.begin(), mail_.begin() + count);
  return events;
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
  std::vector<Event> lost;  // destroyed without the lock
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

void EngineClient::close(const char* reason) {
  const char* open = nullptr;
  if (!closed_.compare_exchange_strong(open, reason) || !engine_->usable()) return;
  std::vector<Event> lost;
  SharedEngine::Lock lock = engine_->enter();
  engine_->queue_.dismiss(
      [this](const TurnQueue::Waiter& waiter) { return waiter.client == this; });
  engine_->chores_.push_back({-1, -1, this});
  for (auto at = engine_->owners_.begin(); at != engine_->owners_.end();) {
    if (at->second != this) {
      ++at;
      continue;
    }
    engine_->chores_.push_back({at->first});
    at = engine_->owners_.erase(at);
  }
  running_ = 0;
  dropped_.clear();
  lost = purge([](const Event&) { return true; });
  engine_->poke(lock);
}

void EngineClient::disinherit() {
  inherited_ = inherited_ || running_ > 0 || !mail_.empty();
  running_ = 0;
  mail_.clear();
  dropped_.clear();
}

void EngineClient::wait_for_step() {
  SharedEngine::Lock lock = engine_->enter();
  if (!engine_->busy_ || engine_->inside()) return;
  if (engine_->take_turn(lock, *this, TurnFor::engine, {})) engine_->end_turn(lock);
}

void EngineClient::set_trace(SharedEngine::Trace trace, const Interrupts& interrupts) {
  const SharedEngine::Turn turn(*engine_, *this, interrupts);
  if (trace) {
    engine_->traces_[this] = std::move(trace);
  } else {
    engine_->traces_.erase(this);
  }
}

}  // namespace onward
