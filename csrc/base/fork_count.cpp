#include "base/fork_count.h"

#include <pthread.h>

#include <atomic>
#include <mutex>

namespace onward {
namespace {

std::atomic<unsigned> forks{0};
std::once_flag handler_once;

}  // namespace

unsigned fork_count() {
  std::call_once(handler_once, [] {
    pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  });
  return forks.load(std::memory_order_relaxed);
}

}  // namespace onward
