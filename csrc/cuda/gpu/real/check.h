// Converts a failed CUDA call to a DeviceError that names the call, the file and the line.
#pragma once

#include <cuda_runtime.h>

#include <new>
#include <string>

#include "base/error.h"

namespace onward::cuda {

inline void check_cuda(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears an error that is not sticky, so that the next call does not report
                       // it
  if (status == cudaErrorMemoryAllocation) throw std::bad_alloc();
  throw DeviceError(std::string(call) + ": " + cudaGetErrorName(status) + ", " +
                    cudaGetErrorString(status) + " (" + file + ":" + std::to_string(line) + ")");
}

}  // namespace onward::cuda

#define CHECK_CUDA(call) ::onward::cuda::check_cuda((call), #call, __FILE_NAME__, __LINE__)
