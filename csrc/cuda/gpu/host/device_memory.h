// Device memory of the test build. With ONWARD_CUDA_HOST_APART=1, the host can access it only
// inside launches and copies. So host code that uses a device pointer fails at once, in the same
// way as with a GPU.
#pragma once

#include <cstddef>

namespace onward::cuda::host {

// Zeroed memory in pages of its own. Throws std::bad_alloc.
void* allocate_device(size_t bytes);
void release_device(void* memory) noexcept;

// While an object of this class exists, the device memory can be read and written.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

}  // namespace onward::cuda::host
