// A pool for parallel loops: the calling thread works too, idle workers spin briefly and then
// sleep. Each thread has a run of neighbouring tasks of its own, which it takes one at a time and
// in order; then it takes those that the others have not come to, so a worker that the system has
// put aside never holds up a loop whose tasks the others can finish. Results must not depend on who
// runs which task.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace onward {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // threads >= 1, the caller's own included; none started yet
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls body(task) for every task in [0, tasks), each once, and returns when all are done. Not
  // re-entrant; one caller at a time. body must not throw.
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

// Processors this process may use: scheduling affinity, limited by the cgroup's CPU quota.
int available_processors();

}  // namespace onward
