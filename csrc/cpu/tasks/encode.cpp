#include "cpu/tasks/encode.h"

#include <algorithm>
#include <cstring>

namespace onward::cpu {
namespace {

constexpr int64_t kMostCoordinates = 512;
constexpr int64_t kMostValues = kMostCoordinates * kBlockTokens;
constexpr int64_t kRegister = 64;  // bytes

// Coordinates of sixteen tokens, (n, 16), and the code of each.
struct Coordinates {
  alignas(64) float x[kMostValues];
  alignas(64) uint8_t codes[kMostValues];
};

// dim: of keys and of values, which are equal in a coded cache.
void pad(int64_t dim, Coordinates& side) {
  const int64_t padded = round_up(dim, CacheLayout::kCodedLane);
  std::fill(side.x + dim * kBlockTokens, side.x + padded * kBlockTokens, 0.0f);
}

void take_keys(const Kernels& kernels, const CacheLayout& layout, int64_t layer, const char* keys,
               const void* first_keys, Coordinates& side) {
  const int64_t dim = layout.group(layer).head_dim;
  widen(kernels, layout.dtype, keys, dim * kBlockTokens, side.x);
  pad(dim, side);
  if (first_keys == nullptr) return;
  float centre[kMostCoordinates];
  key_centre(kernels, layout, layer, first_keys, centre);
  for (int64_t d = 0; d < dim; ++d) {
    for (int64_t t = 0; t < kBlockTokens; ++t) side.x[d * kBlockTokens + t] -= centre[d];
  }
}

void take_values(const Kernels& kernels, const CacheLayout& layout, int64_t layer,
                 const char* values, Coordinates& side) {
  const int64_t dim = layout.group(layer).value_dim;
  const int64_t stride = layout.value_stride(layout.group(layer));
  alignas(64) float row[kMostCoordinates];
  for (int64_t t = 0; t < kBlockTokens; ++t) {
    widen(kernels, layout.dtype, values + t * stride * layout.value_bytes(), stride, row);
    for (int64_t d = 0; d < dim; ++d) side.x[d * kBlockTokens + t] = row[d];
  }
  pad(dim, side);
}

// Four codes of a lane, the first in the lowest byte.
uint32_t join(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return a | b << 8 | c << 16 | d << 24;
}

// codes (n, 16) to n / 4 registers.
void to_key_registers(const uint8_t* codes, int64_t n, uint8_t* registers) {
  for (int64_t r = 0; r < n / 4; ++r) {
    const uint8_t* quad = codes + r * 4 * kBlockTokens;
    uint32_t words[kBlockTokens];
    for (int64_t t = 0; t < kBlockTokens; ++t)
      words[t] = join(quad[t], quad[16 + t], quad[32 + t], quad[48 + t]);
    std::memcpy(registers + r * kRegister, words, kRegister);
  }
}

// Four tokens of a coordinate lie together already: only whole words move.
void to_value_registers(const uint8_t* codes, int64_t n, uint8_t* registers) {
  for (int64_t quad = 0; quad < kBlockTokens / 4; ++quad) {
    for (int64_t d = 0; d < n; ++d) {
      std::memcpy(registers + (quad * n + d) * 4, codes + d * kBlockTokens + quad * 4, 4);
    }
  }
}

// Packs kCount registers of codes into one stored register. Each gives kBits, from bit kFirst on.
template <int kCount, int kBits, int kFirst>
void pack(const uint8_t* registers, int64_t count, uint8_t* stored) {
  constexpr uint32_t kMask = (1u << kBits) - 1;
  for (int64_t i = 0; i < count / kCount; ++i, stored += kRegister) {
    for (int64_t byte = 0; byte < kRegister; ++byte) {
      uint32_t packed = 0;
      for (int j = 0; j < kCount; ++j) {
        packed |= (registers[j * kRegister + byte] >> kFirst & kMask) << (j * kBits);
      }
      stored[byte] = static_cast<uint8_t>(packed);
    }
    registers += kCount * kRegister;
  }
}

void store_codes(KvCodec codec, bool keys, int64_t n, const uint8_t* codes, uint8_t* stored) {
  alignas(64) uint8_t registers[kMostValues];
  (keys ? to_key_registers : to_value_registers)(codes, n, registers);
  const int64_t count = n / 4;
  switch (code_bits(codec)) {
    case 8:
      for (int64_t i = 0; i < count * kRegister; ++i) stored[i] = registers[i] ^ (keys ? 0 : 0x80);
      break;
    case 4:
      pack<2, 4, 0>(registers, count, stored);
      break;
    case 3:
      pack<4, 2, 0>(registers, count, stored);
      pack<8, 1, 2>(registers, count, stored + count / 4 * kRegister);
      break;
    case 2:
      pack<4, 2, 0>(registers, count, stored);
      break;
  }
}

void encode_side(const Kernels& kernels, KvCodec codec, bool keys, int64_t n, Coordinates& side,
                 char* codes, char* scales) {
  uint16_t found[kMostCoordinates / kGroupValues * kBlockTokens];
  if (is_rotated(codec)) kernels.hadamard_lanes(side.x, n);
  kernels.encode(codec, side.x, n, keys, side.codes, found);
  store_codes(codec, keys, n, side.codes, reinterpret_cast<uint8_t*>(codes));
  const int64_t groups = is_grouped(codec) ? n / kGroupValues : 1;
  std::memcpy(scales, found, static_cast<size_t>(groups * kBlockTokens * 2));
}

}  // namespace

void widen(const Kernels& kernels, DType dtype, const void* x, int64_t n, float* y) {
  if (dtype == DType::f32) {
    std::memcpy(y, x, static_cast<size_t>(n) * sizeof(float));
  } else {
    const auto widen_bits = dtype == DType::f16 ? kernels.widen_f16 : kernels.widen_bf16;
    widen_bits(static_cast<const uint16_t*>(x), n, y);
  }
}

void key_centre(const Kernels& kernels, const CacheLayout& layout, int64_t layer, const void* keys,
                float* centre) {
  constexpr int64_t kFirst = 4, kCount = kBlockTokens - kFirst;  // the first four are sinks
  alignas(64) float x[kMostValues];
  const int64_t dim = layout.group(layer).head_dim;
  widen(kernels, layout.dtype, keys, dim * kBlockTokens, x);
  for (int64_t d = 0; d < dim; ++d) {
    centre[d] = 0.0f;
    if (d % (dim / 2) < layout.first_centred_pair) continue;
    float sum = 0.0f;
    for (int64_t t = kFirst; t < kBlockTokens; ++t) sum += x[d * kBlockTokens + t];
    centre[d] = sum * (1.0f / static_cast<float>(kCount));
  }
}

void encode_head(const Kernels& kernels, const CacheLayout& layout, int64_t layer, int64_t kv_head,
                 const BlockEncoding& block) {
  const CacheLayout::Group& group = layout.group(layer);
  const int64_t n = layout.coded_dim(group);
  const char* exact = static_cast<const char*>(block.exact);
  char* coded = static_cast<char*>(block.coded);
  const int64_t keys = layout.keys_offset(layer, kv_head);
  const int64_t values = layout.values_offset(layer, kv_head);
  char* key_codes = coded + layout.key_codes_offset(layer, kv_head);
  char* value_codes = coded + layout.value_codes_offset(layer, kv_head);

  Coordinates side;
  if (layout.key_codec == KvCodec::exact) {
    std::memcpy(key_codes, exact + keys, static_cast<size_t>(layout.exact_keys_bytes(group)));
  } else {
    const bool centred = block.first != nullptr && is_rotated(layout.key_codec);
    const char* first = static_cast<const char*>(block.first);
    take_keys(kernels, layout, layer, exact + keys, centred ? first + keys : nullptr, side);
    encode_side(kernels, layout.key_codec, true, n, side, key_codes,
                coded + layout.key_scales_offset(layer, kv_head));
  }
  if (layout.value_codec == KvCodec::exact) {
    std::memcpy(value_codes, exact + values, static_cast<size_t>(layout.exact_values_bytes(group)));
    return;
  }
  take_values(kernels, layout, layer, exact + values, side);
  encode_side(kernels, layout.value_codec, false, n, side, value_codes,
              coded + layout.value_scales_offset(layer, kv_head));
}

}  // namespace onward::cpu
