// Readers of GGUF's block formats, 32 values at a time, and their shared functions. dequantize.cpp
// chooses among them.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "formats/dequantize.h"

namespace onward {

// Block formats are read in runs of 32 values: a whole block of the small formats, an eighth of a
// block of 256. Scales change at the edges of runs, and in some formats in their middle.
constexpr int64_t kRun = 32;
constexpr int kHalf = 16;

// Each reads run number `run` of a block: 32 values as float32 (k_blocks.cpp).
void read_q2_k(const uint8_t* block, int64_t run, float* out);
void read_q3_k(const uint8_t* block, int64_t run, float* out);
void read_q4_k(const uint8_t* block, int64_t run, float* out);
void read_q5_k(const uint8_t* block, int64_t run, float* out);
void read_q6_k(const uint8_t* block, int64_t run, float* out);
void read_iq2_xs(const uint8_t* block, int64_t run, float* out);  // grid_blocks.cpp
void read_iq2_s(const uint8_t* block, int64_t run, float* out);

// Each reads run number `run` of a block as one scale and whole numbers (k_blocks.cpp for Q3_K,
// table_blocks.cpp for the others).
ScaledRun q3_k_run(const uint8_t* block, int64_t run);
ScaledRun iq4_nl_run(const uint8_t* block, int64_t run);
ScaledRun iq4_xs_run(const uint8_t* block, int64_t run);
ScaledRun mxfp4_run(const uint8_t* block, int64_t run);
ScaledRun tq1_0_run(const uint8_t* block, int64_t run);
ScaledRun tq2_0_run(const uint8_t* block, int64_t run);
ScaledRun iq2_xxs_run(const uint8_t* block, int64_t run);  // grid_blocks.cpp
ScaledRun iq3_xxs_run(const uint8_t* block, int64_t run);
ScaledRun iq3_s_run(const uint8_t* block, int64_t run);

// File data has no alignment: everything is read through memcpy.
template <typename T>
T load(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

inline float read_half(const uint8_t* bytes) { return f16_to_float(load<uint16_t>(bytes)); }

// The 32 nibbles of a small format's block: the low halves are values 0..15, the high
// halves 16..31.
inline void unpack_nibbles(const uint8_t* nibbles, int* q) {
  for (int i = 0; i < kHalf; ++i) {
    q[i] = nibbles[i] & 15;
    q[i + kHalf] = nibbles[i] >> 4;
  }
}

// d * q + m
inline void write_affine(const int* q, float d, float m, float* out) {
  for (int i = 0; i < kRun; ++i) out[i] = d * static_cast<float>(q[i]) + m;
}

}  // namespace onward
