// The CUDA backend and its weights: each verb of backend.h is a launch on one stream.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "cuda/gpu/runtime.h"

namespace onward::cuda {

// `threads` is the number of host threads for sampling and packing. Throws DeviceError if the
// device cannot be used.
std::unique_ptr<Backend> make_backend(int device, int threads);
std::unique_ptr<WeightStore> make_weight_store(int device, int threads);

// The name of this build: "cuda" or "cuda-host".
const char* build_name();

}  // namespace onward::cuda
