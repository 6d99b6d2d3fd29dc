// Calls that compute or wait without the interpreter lock. Python's signal handlers run during such
// a call, and no thread returns to an interpreter that has ended.
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <functional>

#include "engine/shared_engine.h"

namespace onward {

// The functions that interrupt waits and computations of the calling thread. Python runs signal
// handlers only in its main thread, so only that thread polls for them. The caller holds the lock.
Interrupts interrupts();

// Thrown between two verbs of a step in a thread that must not return to Python. Not an Error: it
// ends the call, but no request.
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

// Sleeps forever.
[[noreturn]] void stay_outside();

// Returns body(), called without the interpreter lock.
template <typename Body>
auto outside(const Body& body) {
  const Outside released;
  try {
    return body();
  } catch (const ProcessExits&) {
    stay_outside();
  }
}

// Sets the identity of Python's main thread. In a forked child, the new main thread calls it.
void set_main_thread(unsigned long identity);
// Called at exit without the lock: threads other than the main thread do not return to Python any
// more. Wakes them with `wake` and waits until none of them is about to return.
void keep_threads_outside(std::chrono::steady_clock::time_point deadline,
                          const std::function<void()>& wake);

}  // namespace onward
