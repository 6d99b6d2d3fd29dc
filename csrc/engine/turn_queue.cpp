#include "engine/turn_queue.h"

#include <algorithm>

namespace onward {

void TurnQueue::join(Waiter& waiter) {
  waiter.ticket = tickets_++;
  waiters_.push_back(&waiter);
}

void TurnQueue::leave(Waiter& waiter) {
  waiters_.erase(std::remove(waiters_.begin(), waiters_.end(), &waiter), waiters_.end());
}

TurnQueue::Waiter* TurnQueue::next() {
  Waiter *first = nullptr, *fork = nullptr, *step = nullptr, *work = nullptr;
  const auto found = [](Waiter*& kept, Waiter* waiter) {
    if (kept == nullptr) kept = waiter;
  };
  for (Waiter* waiter : waiters_) {
    if (waiter->away) continue;
    found(first, waiter);
    if (waiter->purpose == TurnFor::fork) {
      found(fork, waiter);
    } else {
      found(waiter->purpose == TurnFor::engine ? work : step, waiter);
    }
  }
  if (fork != nullptr) {
    first = fork;
  } else if (step == nullptr || work == nullptr) {
    series_open_ = false;
  } else {
    if (!series_open_) {
      series_open_ = true;
      series_end_ = tickets_;
    }
    series_open_ = work->ticket < series_end_;
    first = series_open_ ? work : step;
  }
  if (first != nullptr) leave(*first);
  return first;
}

bool TurnQueue::needs_turn() const {
  return std::any_of(waiters_.begin(), waiters_.end(), [](const Waiter* waiter) {
    return waiter->purpose != TurnFor::events && !waiter->away;
  });
}

void TurnQueue::dismiss(const std::function<bool(const Waiter&)>& matches) {
  for (auto at = waiters_.begin(); at != waiters_.end();) {
    if (!matches(**at)) {
      ++at;
      continue;
    }
    (*at)->over = true;
    (*at)->changed.notify_one();
    at = waiters_.erase(at);
  }
}

void TurnQueue::nudge() {
  for (Waiter* waiter : waiters_) {
    waiter->nudged = true;
    waiter->changed.notify_one();
  }
}

}  // namespace onward
