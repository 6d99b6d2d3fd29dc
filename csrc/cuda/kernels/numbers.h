// Scalar arithmetic with the same bits as the kernels of the CPU (cpu/kernels.h). Only fmaf fuses a
// product and a sum.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/dtype.h"
#include "cuda/gpu/gpu.h"

namespace onward::cuda {

constexpr float kInfinity = HUGE_VALF;

// exp(x) with a relative error below 1e-7; 0 below -87.3, infinity above 88.7, NaN for NaN.
__device__ inline float exponential(float x) {
  if (x < -87.3f) return 0.0f;
  if (88.7f < x) return kInfinity;
  if (x != x) return x;
  const float shifter = 12582912.0f;  // 1.5 * 2^23
  const float shifted = fmaf(x, 1.44269504f, shifter);
  const float n = shifted - shifter;
  float r = fmaf(n, -0.693145752f, x);
  r = fmaf(n, -1.42860677e-6f, r);
  float p = 0x1.6a23d0p-10f;
  p = fmaf(p, r, 0x1.123a20p-7f);
  p = fmaf(p, r, 0x1.5558f2p-5f);
  p = fmaf(p, r, 0x1.555492p-3f);
  p = fmaf(p, r, 0x1.fffffcp-2f);
  p = fmaf(p, r, 1.0f);
  p = fmaf(p, r, 1.0f);
  return float_of(bits_of(p) + (bits_of(shifted) << 23));
}

// silu(gate) * up
__device__ inline float gated(float gate, float up) {
  return gate / (1.0f + exponential(0.0f - gate)) * up;
}

// Rounds to nearest even. A NaN stays a NaN, with the same bits as in base/half.h.
__device__ inline uint32_t bf16_of(float value) {
  const uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

__device__ inline uint32_t half_of(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u | ((bits >> 13) & 0x1ffu);
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65,520 and above
  if (magnitude < 0x38800000u) {
    return sign | (bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u);
  }
  return sign | (((magnitude + 0xfffu + ((magnitude >> 13) & 1u)) >> 13) - (112u << 10));
}

__device__ inline float bf16_to_float(uint32_t bits) { return float_of(bits << 16); }

// Element i of values that are stored from `begin` on: f32, f16 or bf16.
__device__ inline float load_element(DType dtype, const char* begin, int64_t i) {
  if (dtype == DType::f32) return reinterpret_cast<const float*>(begin)[i];
  const uint32_t bits = reinterpret_cast<const uint16_t*>(begin)[i];
  return dtype == DType::f16 ? half_to_float(bits) : bf16_to_float(bits);
}

}  // namespace onward::cuda
