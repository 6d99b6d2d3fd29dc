// A thread pool for parallel loops. The calling thread works, too.
// Idle workers spin briefly and then sleep. Each thread has its own range of consecutive tasks,
// which it runs one at a time in order. Then it runs tasks of other threads that have not started.
// So a worker that the system has suspended does not delay a loop. Results must not depend on the
// thread that runs a task.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace onward {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // threads >= 1, including the caller; starts none yet
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls body(task) once for every task in [0, tasks) and returns when all have finished. Not
  // re-entrant; only one caller at a time. body must not throw.
  template <typename Body>
  void run(int64_t tasks, const Body& body) {
    run_erased(
        tasks,
        [](const void* context, int64_t task) { (*static_cast<const Body*>(context))(task); },
        &body);
  }

 private:
  using Function = void (*)(const void* context, int64_t task);
  struct Workers;

  void run_erased(int64_t tasks, Function function, const void* context);
  void ensure_workers();

  int threads_;
  std::unique_ptr<Workers> workers_;
  unsigned fork_generation_ = 0;
};

// The number of cores that this process may use: scheduling affinity, limited by the cgroup quota.
int available_processors();

}  // namespace onward
