// The CUDA backend and its weights: the verbs of backend.h as launches on one stream.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "cuda/gpu/runtime.h"

namespace onward::cuda {

// DeviceError when the device cannot be used. threads: of the host, for sampling and packing.
std::unique_ptr<Backend> make_backend(int device, int threads);
std::unique_ptr<WeightStore> make_weight_store(int device, int threads);

// Of the build: "cuda" or "cuda-host".
const char* build_name();

}  // namespace onward::cuda
