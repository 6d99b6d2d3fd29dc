// The interface of a device library next to libonward. It exports one function, which
// device/device.cpp looks up by name. Both libraries must come from one build; the version is
// compared to detect a mismatch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace onward {

// A device of a library, usable or not.
struct LibraryDevice {
  std::string description;  // "NVIDIA H200, sm_90, 139.7 GiB"
  std::string why_not;      // the reason why it cannot be used; empty: usable
};

// The measured limits of a device.
struct DevicePeaks {
  double read_gb_per_s = 0;
  double copy_gb_per_s = 0;  // the sum of bytes read and bytes written
  double f32_gflop_per_s = 0;
  double bf16_gflop_per_s = 0;
  double int8_gop_per_s = 0;
};

// All functions throw DeviceError for a device that cannot be used.
struct DeviceLibrary {
  const char* version;  // ONWARD_VERSION
  // At least one entry, even if no device can be used.
  std::vector<LibraryDevice> (*devices)();
  std::unique_ptr<Backend> (*make_backend)(int device, int threads);
  std::unique_ptr<WeightStore> (*make_weight_store)(int device, int threads);
  DevicePeaks (*measure)(int device, double seconds);
  // Free bytes of the device's own memory; -1 if it has no memory of its own.
  int64_t (*free_bytes)(int device);
};

// extern "C" const DeviceLibrary* onward_device_library();
using DeviceLibraryEntry = const DeviceLibrary* (*)();
constexpr const char* kDeviceLibraryEntry = "onward_device_library";

}  // namespace onward
