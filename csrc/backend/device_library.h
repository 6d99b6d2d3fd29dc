// What a library beside libonward has to export for its devices to be found: one function, which
// device/device.cpp looks up by name. The two are of one build; the version tells when they are
// not.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace onward {

// One device of a library, usable or not.
struct LibraryDevice {
  std::string description;  // "NVIDIA H200, sm_90, 139.7 GiB"
  std::string why_not;      // empty: it can be used
};

// What a device can do at most, measured now.
struct DevicePeaks {
  double read_gb_per_s = 0;
  double copy_gb_per_s = 0;  // bytes read and bytes written together
  double f32_gflop_per_s = 0;
  double bf16_gflop_per_s = 0;
  double int8_gop_per_s = 0;
};

// All functions throw DeviceError for a device that cannot be used.
struct DeviceLibrary {
  const char* version;  // ONWARD_VERSION
  // At least one entry, also where there is none that can be used.
  std::vector<LibraryDevice> (*devices)();
  std::unique_ptr<Backend> (*make_backend)(int device, int threads);
  std::unique_ptr<WeightStore> (*make_weight_store)(int device, int threads);
  DevicePeaks (*measure)(int device, double seconds);
  // Of the device's own memory, what nobody has taken; -1 where it has none of its own.
  int64_t (*free_bytes)(int device);
};

// extern "C" const DeviceLibrary* onward_device_library();
using DeviceLibraryEntry = const DeviceLibrary* (*)();
constexpr const char* kDeviceLibraryEntry = "onward_device_library";

}  // namespace onward
