// The handlers for the engines of Python when the process forks and when it exits.
#include <pybind11/pybind11.h>

#include <chrono>
#include <memory>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/interpreter.h"
#include "bindings/python_engine.h"

namespace py = pybind11;

namespace {

using onward::SharedEngine;
using Clock = SharedEngine::Clock;
using Engines = std::vector<std::shared_ptr<SharedEngine>>;

constexpr auto kPatience = std::chrono::seconds(2);

thread_local Engines held;  // by a fork of this thread

// Waits until the current steps end, so that the child gets engines between two steps.
void before_fork() {
  const Engines engines = onward::engines_of_python();
  held = onward::outside([&engines] {
    const Clock::time_point deadline = Clock::now() + kPatience;
    Engines kept;
    for (const auto& engine : engines) {
      if (engine->hold_for_fork(deadline)) kept.push_back(engine);
    }
    return kept;
  });
  // With the interpreter lock: no thread waits for one of these with it.
  for (const auto& engine : held) engine->lock_for_fork();
}

void after_fork_in_parent() {
  for (const auto& engine : held) engine->release_after_fork();
  held.clear();
}

void after_fork_in_child() {
  onward::set_main_thread(PyThread_get_thread_ident());
  for (const auto& engine : onward::engines_of_python()) engine->reset_after_fork();
  held.clear();
}

// Python does not wait for daemon threads. If a daemon thread returned from the core after the
// interpreter has ended, the process would end with an error.
void at_exit() {
  const Engines engines = onward::engines_of_python();
  onward::outside([&engines] {
    onward::keep_threads_outside(Clock::now() + kPatience, [&engines] {
      for (const auto& engine : engines) engine->nudge();
    });
  });
}

}  // namespace

void bind_process(py::module_&) {
  const py::object main_thread = py::module_::import("threading").attr("main_thread")();
  onward::set_main_thread(main_thread.attr("ident").cast<unsigned long>());
  const py::module_ os = py::module_::import("os");
  if (py::hasattr(os, "register_at_fork")) {
    os.attr("register_at_fork")(
        py::arg("before") = py::cpp_function(&before_fork),
        py::arg("after_in_parent") = py::cpp_function(&after_fork_in_parent),
        py::arg("after_in_child") = py::cpp_function(&after_fork_in_child));
  }
  py::module_::import("atexit").attr("register")(py::cpp_function(&at_exit));
}
