#include "formats/dequantize.h"

#include <cstring>

#include "base/half.h"

namespace onward {
namespace {

// File data has no alignment: everything is read through memcpy.
template <typename T>
T load(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// Block formats are read in runs of 32 values: a whole block of the small formats, an eighth of a
// block of the K formats, whose scales change at the edges of runs (and in Q6_K in their middle).
constexpr int64_t kRun = 32;
constexpr int kHalf = 16;

// The 32 nibbles of a small format's block: low ones are values 0..15, high ones 16..31.
void unpack_nibbles(const uint8_t* nibbles, int* q) {
  for (int i = 0; i < kHalf; ++i) {
    q[i] = nibbles[i] & 15;
    q[i + kHalf] = nibbles[i] >> 4;
  }
}

// The same with a fifth bit above each: bit i of a little-endian word before the nibbles.
void unpack_five_bits(const uint8_t* word_and_nibbles, int* q) {
  const uint32_t word = load<uint32_t>(word_and_nibbles);
  unpack_nibbles(word_and_nibbles + 4, q);
  for (int i = 0; i < kRun; ++i) q[i] |= static_cast<int>(word >> i & 1) << 4;
}

// d * (q - zero)
void write_symmetric(const int* q, int zero, float d, float* out) {
  for (int i = 0; i < kRun; ++i) out[i] = d * static_cast<float>(q[i] - zero);
}

// d * q + m
void write_affine(const int* q, float d, float m, float* out) {
  for (int i = 0; i < kRun; ++i) out[i] = d * static_cast<float>(q[i]) + m;
}

float read_half(const uint8_t* bytes) { return f16_to_float(load<uint16_t>(bytes)); }

// f16 d, 32 int8
void read_q8_0(const uint8_t* block, int64_t, float* out) {
  const float d = read_half(block);
  for (int i = 0; i < kRun; ++i) out[i] = d * static_cast<int8_t>(block[2 + i]);
}

// f16 d, 32 nibbles
void read_q4_0(const uint8_t* block, int64_t, float* out) {
  int q[kRun];
  unpack_nibbles(block + 2, q);
  write_symmetric(q, 8, read_half(block), out);
}

// f16 d, f16 m, 32 nibbles
void read_q4_1(const uint8_t* block, int64_t, float* out) {
  int q[kRun];
  unpack_nibbles(block + 4, q);
  write_affine(q, read_half(block), read_half(block + 2), out);
}

// f16 d, 32 values of 5 bits
void read_q5_0(const uint8_t* block, int64_t, float* out) {
  int q[kRun];
  unpack_five_bits(block + 2, q);
  write_symmetric(q, 16, read_half(block), out);
}

// f16 d, f16 m, 32 values of 5 bits
void read_q5_1(const uint8_t* block, int64_t, float* out) {
  int q[kRun];
  unpack_five_bits(block + 4, q);
  write_affine(q, read_half(block), read_half(block + 2), out);
}

// The scale of a run of Q4_K or Q5_K, d * scale, and its minimum, -(dmin * minimum). A block begins
// with f16 d, f16 dmin and 12 bytes that hold the scales and the minimums of its 8 runs, 6 bits
// each. Bytes 0..3 and 4..7 have those of runs 0..3 in their low 6 bits; bytes 8..11 the low 4 bits
// of those of runs 4..7 (scale below minimum), whose high 2 bits are the top of bytes 0..3
// and 4..7.
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

// Scales and minimums, then 128 bytes of nibbles: each 32 of them are two runs, the even one low.
Q4kRun q4_k_run(const uint8_t* block, int64_t run) {
  const uint8_t* nibbles = block + 16 + run / 2 * kRun;
  const int64_t shift = run % 2 * 4;
  Q4kRun result = scales_of(block, run);
  for (int i = 0; i < kRun; ++i) result.codes[i] = nibbles[i] >> shift & 15;
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
// each 16 values. A half of the block is 4 runs over 64 bytes of nibbles, the first two the low
// ones, and 32 bytes of bit pairs, the lowest those of the first run.
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

void read_runs(void (*read_run)(const uint8_t*, int64_t, float*), DType dtype, const uint8_t* row,
               int64_t first, int64_t count, float* out) {
  const int64_t values = dtype_block_values(dtype), bytes = dtype_block_bytes(dtype);
  for (int64_t i = first; i < first + count; i += kRun, out += kRun) {
    read_run(row + i / values * bytes, i % values / kRun, out);
  }
}

}  // namespace

void read_row(DType dtype, const void* row, int64_t first, int64_t count, float* out) {
  const uint8_t* bytes = static_cast<const uint8_t*>(row);
  switch (dtype) {
    case DType::f32:
      std::memcpy(out, bytes + first * 4, static_cast<size_t>(count) * 4);
      return;
    case DType::f16:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = f16_to_float(load<uint16_t>(bytes + (first + i) * 2));
      }
      return;
    case DType::bf16:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = bf16_to_float(load<uint16_t>(bytes + (first + i) * 2));
      }
      return;
    case DType::q8_0:
      return read_runs(read_q8_0, dtype, bytes, first, count, out);
    case DType::q4_0:
      return read_runs(read_q4_0, dtype, bytes, first, count, out);
    case DType::q4_1:
      return read_runs(read_q4_1, dtype, bytes, first, count, out);
    case DType::q4_k:
      return read_runs(read_q4_k, dtype, bytes, first, count, out);
    case DType::q5_k:
      return read_runs(read_q5_k, dtype, bytes, first, count, out);
    case DType::q6_k:
      return read_runs(read_q6_k, dtype, bytes, first, count, out);
    case DType::q5_0:
      return read_runs(read_q5_0, dtype, bytes, first, count, out);
    case DType::q5_1:
      return read_runs(read_q5_1, dtype, bytes, first, count, out);
  }
}

Q4kRun read_q4_k_run(const void* row, int64_t first) {
  const int64_t values = dtype_block_values(DType::q4_k), bytes = dtype_block_bytes(DType::q4_k);
  return q4_k_run(static_cast<const uint8_t*>(row) + first / values * bytes, first % values / kRun);
}

}  // namespace onward
