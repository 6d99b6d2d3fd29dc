#include "base/thread_pool.h"

#include <system_error>

#include "base/fork_count.h"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace onward {
namespace {

void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// About 50 microseconds. This is longer than the gaps between the loops of a step, and short enough
// not to keep an idle or oversubscribed machine busy.
constexpr int kSpins = 1500;

constexpr uint64_t kTaskMask = 0xffffffffu;

}  // namespace

struct ThreadPool::Workers {
  // The tasks of one thread. High half: number of the loop; low half: tasks that are not claimed. A
  // claim is a compare-exchange that must see the number of its loop, so a late worker cannot claim
  // a task of the next loop.
  struct alignas(64) Share {
    std::atomic<uint64_t> ticket{0};
  };
  explicit Workers(int threads) : shares(static_cast<size_t>(threads)) {}

  std::vector<Share> shares;
  alignas(64) std::atomic<uint64_t> loop{0};  // idle workers wait for a change
  alignas(64) std::atomic<int64_t> done{0};
  std::atomic<int> sleepers{0};
  std::atomic<bool> stop{false};
  // Written by the caller only between loops; read by a thread that has claimed a task.
  alignas(64) Function function = nullptr;
  const void* context = nullptr;
  int64_t tasks = 0;
  std::vector<std::thread> threads;

  int64_t first_task(size_t share) const {
    return tasks * static_cast<int64_t>(share) / static_cast<int64_t>(shares.size());
  }

  bool run_one_task(size_t share) {
    std::atomic<uint64_t>& ticket = shares[share].ticket;
    uint64_t seen = ticket.load(std::memory_order_acquire);
    while ((seen & kTaskMask) != 0) {
      if (ticket.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel)) {
        function(context, first_task(share + 1) - static_cast<int64_t>(seen & kTaskMask));
        done.fetch_add(1, std::memory_order_release);
        return true;
      }
    }
    return false;
  }

  // Runs the thread's own tasks in order, then unclaimed tasks of other threads.
  void run_tasks(size_t self) {
    for (size_t i = 0; i < shares.size(); ++i) {
      while (run_one_task((self + i) % shares.size())) {
      }
    }
  }

  void work(size_t self) {
    uint64_t seen = 0;
    while (!stop.load(std::memory_order_relaxed)) {
      const uint64_t now = loop.load(std::memory_order_acquire);
      if (now != seen) {
        seen = now;
        run_tasks(self);
        continue;
      }
      bool found = false;
      for (int spin = 0; spin < kSpins && !found; ++spin) {
        pause_briefly();
        found = loop.load(std::memory_order_relaxed) != seen;
      }
      if (found) continue;
      sleepers.fetch_add(1);
      loop.wait(seen);
      sleepers.fetch_sub(1);
    }
  }

  void publish() {
    loop.fetch_add(1);  // sequentially consistent with the sleepers count: no lost wake-up
    if (sleepers.load() > 0) loop.notify_all();
  }
};

ThreadPool::ThreadPool(int threads) : threads_(threads), fork_generation_(fork_count()) {}

ThreadPool::~ThreadPool() {
  if (!workers_) return;
  if (fork_generation_ != fork_count()) {
    workers_.release();  // the threads exist only in the parent: no join, and no safe free
    return;
  }
  workers_->stop.store(true);
  workers_->publish();
  for (std::thread& thread : workers_->threads) thread.join();
}

void ThreadPool::ensure_workers() {
  const unsigned generation = fork_count();
  if (workers_ && fork_generation_ == generation) return;
  workers_.release();  // null, or the workers of the parent process
  workers_ = std::make_unique<Workers>(threads_);
  fork_generation_ = generation;
  try {
    for (int i = 1; i < threads_; ++i) {
      workers_->threads.emplace_back(
          [workers = workers_.get(), i] { workers->work(static_cast<size_t>(i)); });
    }
  } catch (const std::system_error&) {
    // The system refuses more threads. The existing ones do all the work, with the same bits.
  }
}

void ThreadPool::run_erased(int64_t tasks, Function function, const void* context) {
  if (threads_ == 1 || tasks <= 1) {
    for (int64_t task = 0; task < tasks; ++task) function(context, task);
    return;
  }
  ensure_workers();
  Workers& workers = *workers_;
  workers.function = function;
  workers.context = context;
  workers.tasks = tasks;
  workers.done.store(0, std::memory_order_relaxed);
  const uint64_t loop = workers.loop.load(std::memory_order_relaxed) + 1;
  for (size_t share = 0; share < workers.shares.size(); ++share) {
    const int64_t count = workers.first_task(share + 1) - workers.first_task(share);
    workers.shares[share].ticket.store((loop << 32) | static_cast<uint64_t>(count),
                                       std::memory_order_release);
  }
  workers.publish();
  workers.run_tasks(0);
  for (int spin = 0; workers.done.load(std::memory_order_acquire) != tasks;) {
    if (spin < kSpins) {
      ++spin;
      pause_briefly();
    } else {
      std::this_thread::yield();  // the thread of the last task may need this core
    }
  }
}

}  // namespace onward
