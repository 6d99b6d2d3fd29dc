#include "formats/dequantize.h"

#include <cstring>

#include "formats/block_readers.h"

namespace onward {
namespace {

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

// Reads a run of a block, by the number of the run.
using RunReader = void (*)(const uint8_t*, int64_t, float*);
using ScaledReader = ScaledRun (*)(const uint8_t*, int64_t);

template <ScaledReader read>
void read_scaled(const uint8_t* block, int64_t run, float* out) {
  const ScaledRun stored = read(block, run);
  for (int i = 0; i < kRun; ++i) out[i] = stored.scale * static_cast<float>(stored.codes[i]);
}

// The readers of a block format. f32, f16 and bf16 have none.
struct Readers {
  RunReader values = nullptr;
  ScaledReader scaled = nullptr;  // null if the format has no such runs
};

Readers readers_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
      return {};
    case DType::q8_0:
      return {read_q8_0};
    case DType::q4_0:
      return {read_q4_0};
    case DType::q4_1:
      return {read_q4_1};
    case DType::q5_0:
      return {read_q5_0};
    case DType::q5_1:
      return {read_q5_1};
    case DType::q2_k:
      return {read_q2_k};
    case DType::q3_k:
      return {read_q3_k, q3_k_run};
    case DType::q4_k:
      return {read_q4_k};
    case DType::q5_k:
      return {read_q5_k};
    case DType::q6_k:
      return {read_q6_k};
    case DType::iq4_nl:
      return {read_scaled<iq4_nl_run>, iq4_nl_run};
    case DType::iq4_xs:
      return {read_scaled<iq4_xs_run>, iq4_xs_run};
    case DType::mxfp4:
      return {read_scaled<mxfp4_run>, mxfp4_run};
    case DType::tq1_0:
      return {read_scaled<tq1_0_run>, tq1_0_run};
    case DType::tq2_0:
      return {read_scaled<tq2_0_run>, tq2_0_run};
    case DType::iq2_xxs:
      return {read_scaled<iq2_xxs_run>, iq2_xxs_run};
    case DType::iq2_xs:
      return {read_iq2_xs};
    case DType::iq2_s:
      return {read_iq2_s};
    case DType::iq3_xxs:
      return {read_scaled<iq3_xxs_run>, iq3_xxs_run};
    case DType::iq3_s:
      return {read_scaled<iq3_s_run>, iq3_s_run};
  }
  return {};
}

}  // namespace

void read_row(DType dtype, const void* row, int64_t first, int64_t count, float* out) {
  const uint8_t* bytes = static_cast<const uint8_t*>(row);
  if (dtype == DType::f32) {
    std::memcpy(out, bytes + first * 4, static_cast<size_t>(count) * 4);
    return;
  }
  if (dtype == DType::f16) {
    for (int64_t i = 0; i < count; ++i) out[i] = read_half(bytes + (first + i) * 2);
    return;
  }
  if (dtype == DType::bf16) {
    for (int64_t i = 0; i < count; ++i) {
      out[i] = bf16_to_float(load<uint16_t>(bytes + (first + i) * 2));
    }
    return;
  }
  const RunReader read = readers_of(dtype).values;
  const int64_t values = dtype_block_values(dtype), size = dtype_block_bytes(dtype);
  for (int64_t i = first; i < first + count; i += kRun, out += kRun) {
    read(bytes + i / values * size, i % values / kRun, out);
  }
}

bool has_scaled_runs(DType dtype) { return readers_of(dtype).scaled != nullptr; }

ScaledRun read_scaled_run(DType dtype, const void* row, int64_t first) {
  const int64_t values = dtype_block_values(dtype), bytes = dtype_block_bytes(dtype);
  const uint8_t* block = static_cast<const uint8_t*>(row) + first / values * bytes;
  return readers_of(dtype).scaled(block, first % values / kRun);
}

}  // namespace onward
