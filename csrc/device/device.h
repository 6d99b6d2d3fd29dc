// The list of devices, and opening a device by its name. The CPU always exists. Other devices come
// from libraries next to this one (backend/device_library.h). A library is opened at the first
// request for one of its devices, so a program that uses only the CPU needs no driver.
//
//   cpu                 this library
//   cuda, cuda:0, ...   libonward_cuda.so; ONWARD_CUDA_LIBRARY names another file
//   cuda-host           libonward_cuda_host.so: the CUDA kernels compiled for the CPU, for
//                       tests; ONWARD_CUDA_HOST_LIBRARY names another file
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/device_library.h"

namespace onward {

struct DeviceState {
  std::string name;         // the name for open_device
  std::string description;  // "NVIDIA H200, sm_90, 139.7 GiB"; may be empty
  std::string why_not;      // the reason why it cannot be used; empty: ready
};

// All known devices, in the order above. Opens the libraries.
std::vector<DeviceState> list_devices();

class Device {
 public:
  // Throws InvalidArgument for an unknown name and DeviceError for a device that cannot be used.
  explicit Device(const std::string& name);

  const std::string& name() const { return name_; }  // "cuda" is "cuda:0" here
  std::unique_ptr<Backend> make_backend(int threads) const;
  std::unique_ptr<WeightStore> make_weight_store(int threads) const;
  // Measures the limits of the device. InvalidArgument for the CPU, whose kernels have own probes.
  DevicePeaks measure(double seconds) const;
  // Free bytes of the device's own memory; -1 if it uses the memory of the host.
  int64_t free_bytes() const;

 private:
  std::string name_;
  int index_ = 0;
  const DeviceLibrary* library_ = nullptr;  // null: the CPU
};

}  // namespace onward
