// The destination of the sums of a product.
#pragma once

#include <cstdint>

#include "cuda/gpu/gpu.h"

namespace onward::cuda {

struct ProductOutput {
  float* y;           // (rows, outputs)
  const float* bias;  // (outputs); null: no bias
  int64_t outputs;
  bool add;  // add to y instead of overwriting it

  __device__ void store(int64_t row, int64_t output, float sum) const {
    float& place = y[row * outputs + output];
    if (bias != nullptr) sum += bias[output];
    place = add ? place + sum : sum;
  }
};

}  // namespace onward::cuda
