// generate(engine_handle, ids, count): a C++ function that uses the engine of a Python program.
// Both may generate at the same time; their requests run in the same steps.
#include <onward/onward.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <vector>

namespace {

std::vector<std::int32_t> generate(std::uintptr_t engine_handle, std::vector<std::int32_t> prompt,
                                   std::int64_t count) {
  onward::Engine engine = onward::Engine::from_handle(engine_handle);
  std::vector<std::int32_t> output;
  engine.submit(onward::Request(std::move(prompt)).max_new_tokens(count));
  engine.run([&](const onward::Event& event) {
    event.throw_if_failed();
    if (event.has_token()) output.push_back(event.token);
  });
  return output;
}

}  // namespace

PYBIND11_MODULE(_shared_engine, m) {
  m.def("generate", &generate, pybind11::arg("engine_handle"), pybind11::arg("prompt"),
        pybind11::arg("count"), pybind11::call_guard<pybind11::gil_scoped_release>());
}
