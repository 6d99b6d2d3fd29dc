// Devices by name for Python: a list of them, and the limits of each.
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/bindings.h"
#include "device/device.h"

namespace py = pybind11;

namespace {

// (name, description, reason why it cannot be used) of each device.
std::vector<std::tuple<std::string, std::string, std::string>> devices() {
  std::vector<std::tuple<std::string, std::string, std::string>> told;
  const py::gil_scoped_release release;
  for (const onward::DeviceState& state : onward::list_devices()) {
    told.emplace_back(state.name, state.description, state.why_not);
  }
  return told;
}

py::dict measure_device(const std::string& name, double seconds) {
  onward::DevicePeaks peaks;
  {
    const py::gil_scoped_release release;
    peaks = onward::Device(name).measure(seconds);
  }
  py::dict told;
  told["read"] = peaks.read_gb_per_s;
  told["copy"] = peaks.copy_gb_per_s;
  told["f32"] = peaks.f32_gflop_per_s;
  told["bf16"] = peaks.bf16_gflop_per_s;
  told["int8"] = peaks.int8_gop_per_s;
  return told;
}

}  // namespace

void bind_device(py::module_& m) {
  m.def("devices", &devices);
  m.def(
      "device_free_bytes",
      [](const std::string& name) -> std::optional<int64_t> {
        const py::gil_scoped_release release;
        const int64_t bytes = onward::Device(name).free_bytes();
        if (bytes < 0) return std::nullopt;
        return bytes;
      },
      py::arg("device"));
  m.def("measure_device", &measure_device, py::arg("device"), py::arg("seconds"));
  m.def(
      "device_name",
      [](const std::string& name) {
        const py::gil_scoped_release release;
        return onward::Device(name).name();
      },
      py::arg("device"));
}
