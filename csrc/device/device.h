// Which devices there are, and opening one by its name. The processor is always there; others come
// from libraries beside this one (backend/device_library.h), which are opened when they are first
// asked for, so that nobody needs a driver who asks for none.
//
//   cpu                 this library
//   cuda, cuda:0, ...   libonward_cuda.so; ONWARD_CUDA_LIBRARY names another file
//   cuda-host           libonward_cuda_host.so: the CUDA kernels compiled for the processor, for
//                       tests; ONWARD_CUDA_HOST_LIBRARY names another file
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/device_library.h"

namespace onward {

struct DeviceState {
  std::string name;         // as open_device takes it
  std::string description;  // "NVIDIA H200, sm_90, 139.7 GiB"; may be empty
  std::string why_not;      // empty: ready
};

// All there could be, in the order above. Opens the libraries.
std::vector<DeviceState> list_devices();

class Device {
 public:
  // InvalidArgument for a name that no device has, DeviceError for one that cannot be used.
  explicit Device(const std::string& name);

  const std::string& name() const { return name_; }  // "cuda" is "cuda:0" here
  std::unique_ptr<Backend> make_backend(int threads) const;
  std::unique_ptr<WeightStore> make_weight_store(int threads) const;
  // Not of the processor, whose kernels have probes of their own: InvalidArgument.
  DevicePeaks measure(double seconds) const;
  // Of memory that is the device's own; -1 where it computes in the host's.
  int64_t free_bytes() const;

 private:
  std::string name_;
  int index_ = 0;
  const DeviceLibrary* library_ = nullptr;  // null: the processor
};

}  // namespace onward
