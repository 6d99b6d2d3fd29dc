// The K formats of GGUF: blocks of 256 values, with scales of scales.
#include "formats/block_readers.h"

namespace onward {
namespace {

// The scale of a run of Q4_K or Q5_K, d * scale, and its minimum, -(dmin * minimum). A block begins
// with f16 d, f16 dmin and 12 bytes that hold the scales and the minimums of its 8 runs, 6 bits
// each. Bytes 0..3 hold the scales of runs 0..3 in their low 6 bits, and bytes 4..7 the minimums.
// Bytes 8..11 hold the low 4 bits of runs 4..7 (scale below minimum). The top 2 bits of bytes 0..3
// and 4..7 are the high 2 bits of their scales and minimums.
Q4kRun scales_of(const uint8_t* block, int64_t run) {
  const uint8_t* packed = block + 4;
  int scale = packed[run] & 63;
  int minimum = packed[run + 4] & 63;
  if (run >= 4) {
    scale = (packed[run + 4] & 15) | packed[run - 4] >> 6 << 4;
    minimum = packed[run + 4] >> 4 | packed[run] >> 6 << 4;
  }
  return {read_half(block) * static_cast<float>(scale),
          -(read_half(block + 2) * static_cast<float>(minimum)),
          {}};
}

// Scales and minimums, then 128 bytes of nibbles. Each 32 bytes are two runs, the even run in the
// low halves.
Q4kRun q4_k_run(const uint8_t* block, int64_t run) {
  const uint8_t* nibbles = block + 16 + run / 2 * kRun;
  const int64_t shift = run % 2 * 4;
  Q4kRun result = scales_of(block, run);
  for (int i = 0; i < kRun; ++i) result.codes[i] = nibbles[i] >> shift & 15;
  return result;
}

// The scale number `number` of the 16 of a Q3_K block, 6 bits with an offset of 32. 12 bytes: the
// first 8 hold the low 4 bits of scales 0..7 and, above them, of 8..15. The last 4 hold the high 2
// bits: byte i has the bits of scales i, i + 4, i + 8 and i + 12.
int q3_k_scale(const uint8_t* packed, int64_t number) {
  const int low = packed[number % 8] >> number / 8 * 4 & 15;
  const int high = packed[8 + number % 4] >> number / 4 * 2 & 3;
  return (low | high << 4) - 32;
}

// A half of a block of 2-bit codes is 4 runs over 32 bytes, the first in the lowest bits.
int pair_of(const uint8_t* pairs, int64_t run, int i) {
  return pairs[run / 4 * kRun + i] >> run % 4 * 2 & 3;
}

int q3_k_code(const uint8_t* block, int64_t run, int i) {
  return pair_of(block + 32, run, i) + (block[i] >> run & 1) * 4 - 4;
}

}  // namespace

// 16 bytes with a scale (low) and a minimum (high) for each 16 values, 64 bytes of 2-bit codes, f16
// d, f16 dmin: d * scale * q - dmin * minimum.
void read_q2_k(const uint8_t* block, int64_t run, float* out) {
  const float d = read_half(block + 80), d_min = read_half(block + 82);
  for (int half = 0; half < 2; ++half) {
    const uint8_t packed = block[run * 2 + half];
    const float scale = d * static_cast<float>(packed & 15);
    const float minimum = d_min * static_cast<float>(packed >> 4);
    for (int i = half * kHalf; i < (half + 1) * kHalf; ++i) {
      out[i] = scale * static_cast<float>(pair_of(block + 16, run, i)) - minimum;
    }
  }
}

// 32 bytes of third bits (bit `run` of byte i belongs to value i), 64 bytes of 2-bit codes, 12
// bytes of scales, f16 d: d * scale * (q - 4), a scale for each 16 values.
void read_q3_k(const uint8_t* block, int64_t run, float* out) {
  const float d = read_half(block + 108);
  for (int i = 0; i < kRun; ++i) {
    const float scale = d * static_cast<float>(q3_k_scale(block + 96, run * 2 + i / kHalf));
    out[i] = scale * static_cast<float>(q3_k_code(block, run, i));
  }
}

// The product of scale and code is a whole number from -124 to 128. It fits 8 bits if its sign and
// the sign of d are both changed.
ScaledRun q3_k_run(const uint8_t* block, int64_t run) {
  ScaledRun result = {-read_half(block + 108), {}};
  for (int i = 0; i < kRun; ++i) {
    const int scale = q3_k_scale(block + 96, run * 2 + i / kHalf);
    result.codes[i] = static_cast<int8_t>(-scale * q3_k_code(block, run, i));
  }
  return result;
}

void read_q4_k(const uint8_t* block, int64_t run, float* out) {
  const Q4kRun stored = q4_k_run(block, run);
  write_affine(stored.codes, stored.scale, stored.minimum, out);
}

// As Q4_K, with 32 bytes before the nibbles: bit `run` of byte i is the fifth bit of value i.
void read_q5_k(const uint8_t* block, int64_t run, float* out) {
  const uint8_t* high = block + 16;
  const uint8_t* nibbles = block + 48 + run / 2 * kRun;
  const int64_t shift = run % 2 * 4;
  int q[kRun];
  for (int i = 0; i < kRun; ++i) q[i] = (nibbles[i] >> shift & 15) | (high[i] >> run & 1) << 4;
  const Q4kRun scales = scales_of(block, run);
  write_affine(q, scales.scale, scales.minimum, out);
}

// 128 bytes of nibbles, 64 of bit pairs, 16 int8 scales, f16 d: d * scale * (q - 32), a scale for
// each 16 values. A half of the block is 4 runs over 64 bytes of nibbles, the first two runs in the
// low halves, and 32 bytes of bit pairs, the first run in the lowest bits.
void read_q6_k(const uint8_t* block, int64_t run, float* out) {
  const int64_t half = run / 4, quarter = run % 4;
  const uint8_t* nibbles = block + half * 64 + quarter % 2 * kRun;
  const uint8_t* high = block + 128 + half * kRun;
  const uint8_t* scales = block + 192 + run * 2;
  const int64_t shift = quarter / 2 * 4, pair = quarter * 2;
  const float d = read_half(block + 208);
  const float d_low = d * static_cast<int8_t>(scales[0]);
  const float d_high = d * static_cast<int8_t>(scales[1]);
  for (int i = 0; i < kRun; ++i) {
    const int q = (nibbles[i] >> shift & 15) | (high[i] >> pair & 3) << 4;
    out[i] = (i < kHalf ? d_low : d_high) * static_cast<float>(q - 32);
  }
}

Q4kRun read_q4_k_run(const void* row, int64_t first) {
  const int64_t values = dtype_block_values(DType::q4_k), bytes = dtype_block_bytes(DType::q4_k);
  return q4_k_run(static_cast<const uint8_t*>(row) + first / values * bytes, first % values / kRun);
}

}  // namespace onward
