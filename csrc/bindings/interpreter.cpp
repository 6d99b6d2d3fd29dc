#include "bindings/interpreter.h"

#include <unistd.h>

#include <atomic>
#include <thread>

namespace py = pybind11;

namespace onward {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kComputingInterval = std::chrono::milliseconds(50);
constexpr auto kWaitingInterval = std::chrono::milliseconds(5);
constexpr auto kPause = std::chrono::milliseconds(1);

std::atomic<unsigned long> main_thread{0};
std::atomic<bool> exiting{false};
std::atomic<int> threads_outside{0};  // without the main thread
thread_local int depth = 0;           // of this thread's Outside scopes

bool is_main_thread() { return PyThread_get_thread_ident() == main_thread.load(); }

// Runs Python's signal handlers and throws the exception that they raise, usually a
// KeyboardInterrupt.
void check_signals() {
  const py::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

class CheckSignalsNowAndThen {
 public:
  void operator()() {
    const auto now = Clock::now();
    if (now - last_ < kComputingInterval) return;
    last_ = now;
    check_signals();
  }

 private:
  Clock::time_point last_ = Clock::now();
};

void check_exit() {
  if (exiting.load(std::memory_order_relaxed)) throw ProcessExits();
}

}  // namespace

Interrupts interrupts() {
  Interrupts made;
  if (is_main_thread()) {
    made.computing = CheckSignalsNowAndThen();
    made.waiting = check_signals;
    made.interval = kWaitingInterval;
  } else {
    made.computing = made.waiting = check_exit;
    made.interval = std::chrono::milliseconds(0);
  }
  return made;
}

Outside::Outside() : main_(is_main_thread()) {
  if (!main_) threads_outside.fetch_add(1);
  ++depth;
  state_ = PyEval_SaveThread();
}

Outside::~Outside() {
  if (!main_ && exiting.load()) stay_outside();
  PyEval_RestoreThread(state_);
  --depth;
  if (!main_) threads_outside.fetch_sub(1);
}

void stay_outside() {
  threads_outside.fetch_sub(depth);
  for (;;) pause();
}

void set_main_thread(unsigned long identity) {
  main_thread.store(identity);
  threads_outside.store(0);
}

void keep_threads_outside(Clock::time_point deadline, const std::function<void()>& wake) {
  exiting.store(true);
  while (threads_outside.load() > 0 && Clock::now() < deadline) {
    wake();
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace onward
