// Device memory of the test build. With ONWARD_CUDA_HOST_APART=1 it is out of the host's reach
// except inside launches and copies, so that code which takes a device's pointer for one of its own
// ends at once, as it would with a GPU. Knows nothing of kernels.
#pragma once

#include <cstddef>

namespace onward::cuda::host {

// Zeroed, whole pages of its own. std::bad_alloc.
void* allocate_device(size_t bytes);
void release_device(void* memory) noexcept;

// While one lives, the device's memory can be read and written.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

}  // namespace onward::cuda::host
