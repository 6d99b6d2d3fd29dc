// The norm of one row.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/backend.h"
#include "cpu/kernels.h"

namespace onward::cpu {

// y = norm(x), and zeros from norm.size to `stride`. y may be x.
inline void normalise_row(const Kernels& kernels, const Norm& norm, const float* x, int64_t stride,
                          float* y) {
  if (norm.layer) {
    kernels.layer_norm(x, norm.weight.data, norm.bias.data, norm.eps, norm.size, y);
  } else {
    kernels.rms_norm(x, norm.weight.data, norm.eps, norm.size, y);
  }
  std::fill(y + norm.size, y + stride, 0.0f);
}

}  // namespace onward::cpu
