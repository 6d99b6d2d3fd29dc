#include "cpu/dequantize.h"

#include <cstring>

#include "base/half.h"

namespace onward::cpu {
namespace {

// File data has no alignment: everything is read through memcpy.
template <typename T>
T load(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

constexpr int64_t kBlockValues = 32;

// Block formats of GGUF: scale d (f16), [minimum m (f16)], then 32 values.
void read_q8_0(const uint8_t* block, float* out) {
  const float d = f16_to_float(load<uint16_t>(block));
  for (int i = 0; i < kBlockValues; ++i) out[i] = d * static_cast<int8_t>(block[2 + i]);
}

void read_q4_0(const uint8_t* block, float* out) {
  const float d = f16_to_float(load<uint16_t>(block));
  for (int i = 0; i < 16; ++i) {  // low nibbles are values 0..15, high nibbles 16..31
    out[i] = d * static_cast<float>((block[2 + i] & 15) - 8);
    out[i + 16] = d * static_cast<float>((block[2 + i] >> 4) - 8);
  }
}

void read_q4_1(const uint8_t* block, float* out) {
  const float d = f16_to_float(load<uint16_t>(block));
  const float m = f16_to_float(load<uint16_t>(block + 2));
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(block[4 + i] & 15) + m;
    out[i + 16] = d * static_cast<float>(block[4 + i] >> 4) + m;
  }
}

void read_blocks(void (*read_block)(const uint8_t*, float*), DType dtype, const uint8_t* row,
                 int64_t first, int64_t count, float* out) {
  const int64_t bytes = dtype_block_bytes(dtype);
  for (int64_t i = 0; i < count; i += kBlockValues) {
    read_block(row + (first + i) / kBlockValues * bytes, out + i);
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
      return read_blocks(read_q8_0, dtype, bytes, first, count, out);
    case DType::q4_0:
      return read_blocks(read_q4_0, dtype, bytes, first, count, out);
    case DType::q4_1:
      return read_blocks(read_q4_1, dtype, bytes, first, count, out);
  }
}

}  // namespace onward::cpu
