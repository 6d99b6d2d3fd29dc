// Where the sums of a product go. Knows nothing of how they were made.
#pragma once

#include <cstdint>

#include "cuda/gpu/gpu.h"

namespace onward::cuda {

struct ProductOutput {
  float* y;           // (rows, outputs)
  const float* bias;  // (outputs), or null
  int64_t outputs;
  bool add;  // to what y holds

  __device__ void store(int64_t row, int64_t output, float sum) const {
    float& place = y[row * outputs + output];
    if (bias != nullptr) sum += bias[output];
    place = add ? place + sum : sum;
  }
};

}  // namespace onward::cuda
