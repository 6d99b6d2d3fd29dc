// Leaving the interpreter for a call that computes or waits: the interpreter lock is released,
// signal handlers of Python run meanwhile, and no thread comes back into an interpreter that has
// ended.
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <functional>

#include "engine/shared_engine.h"

namespace onward {

// What ends the waits and computations of the calling thread. Signal handlers run in Python's main
// thread only, so only that thread polls for them. With the lock.
Interrupts interrupts();

// Thrown between two verbs of a step in a thread that must not return to Python. Not an Error: it
// ends the call, and no request.
struct ProcessExits {};

// The interpreter lock, released for a scope.
class Outside {
 public:
  Outside();
  ~Outside();
  Outside(const Outside&) = delete;
  Outside& operator=(const Outside&) = delete;

 private:
  bool main_;  // Python's main thread
  PyThreadState* state_;
};

// Sleeps for ever.
[[noreturn]] void stay_outside();

// body() without the interpreter lock.
template <typename Body>
auto outside(const Body& body) {
  const Outside released;
  try {
    return body();
  } catch (const ProcessExits&) {
    stay_outside();
  }
}

// Python's main thread has this identity; called by it in a forked child.
void set_main_thread(unsigned long identity);
// At exit: from now on threads other than the main thread stay outside. Wakes them with `wake` and
// waits until none of them is on its way back. Without the lock.
void keep_threads_outside(std::chrono::steady_clock::time_point deadline,
                          const std::function<void()>& wake);

}  // namespace onward
