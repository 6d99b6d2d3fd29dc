// The exported table of functions (backend/device_library.h).
#include "backend/device_library.h"
#include "cuda/backend/cuda_backend.h"
#include "cuda/kernels/verbs.h"
#include "onward/version.h"

namespace onward::cuda {
namespace {

DevicePeaks measure(int device, double seconds) {
  Stream stream(device, 1);
  return measure_peaks(stream, seconds);
}

}  // namespace
}  // namespace onward::cuda

extern "C" __attribute__((visibility("default"))) const onward::DeviceLibrary*
onward_device_library() {
  static const onward::DeviceLibrary library = {ONWARD_VERSION,
                                                onward::cuda::list_devices,
                                                onward::cuda::make_backend,
                                                onward::cuda::make_weight_store,
                                                onward::cuda::measure,
                                                onward::cuda::free_bytes};
  return &library;
}
