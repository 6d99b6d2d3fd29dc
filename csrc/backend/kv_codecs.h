// The codecs of the cache: how the keys or the values of a coded block are stored. This table is
// the only list of them; names, sizes, the choice of kernels and Python's names derive from it.
//
// Every instruction set's file includes this header, so its functions have internal linkage: a
// function that was compiled for AVX-512 must never be linked into code for another processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>

#include "backend/codebooks.h"

#ifdef __CUDACC__
#define ONWARD_HOST_DEVICE __host__ __device__
#else
#define ONWARD_HOST_DEVICE
#endif

namespace onward {

// exact: floats, as in an exact block. int8: one byte a coordinate. q4_0: GGUF's four bits, there
// for comparison. turbo4, turbo3, turbo2: codes of a codebook (TurboQuant, Zandieh et al. 2025).
enum class KvCodec : uint8_t { exact, int8, q4_0, turbo4, turbo3, turbo2 };

struct KvCodecInfo {
  KvCodec codec;
  const char* name;
  int bits;              // of the code of one coordinate; 0: stored as in an exact block
  bool rotated;          // vectors are rotated first, and keys are taken relative to their centre
  bool grouped = false;  // one f16 scale for each 32 coordinates, else one for the whole vector
  bool signed_scales = false;
  Codebook book = {};  // what the codes stand for; empty where they are the integers themselves
};

inline constexpr KvCodecInfo kKvCodecs[] = {
    {.codec = KvCodec::exact, .name = "exact", .bits = 0, .rotated = false},
    {.codec = KvCodec::int8, .name = "int8", .bits = 8, .rotated = true},
    {.codec = KvCodec::q4_0,
     .name = "q4_0",
     .bits = 4,
     .rotated = false,
     .grouped = true,
     .signed_scales = true},
    {.codec = KvCodec::turbo4,
     .name = "turbo4",
     .bits = 4,
     .rotated = true,
     .book = {kTurbo4Integers, kTurbo4Deviation}},
    {.codec = KvCodec::turbo3,
     .name = "turbo3",
     .bits = 3,
     .rotated = true,
     .book = {kTurbo3Integers, kTurbo3Deviation}},
    {.codec = KvCodec::turbo2,
     .name = "turbo2",
     .bits = 2,
     .rotated = true,
     .book = {kTurbo2Integers, kTurbo2Deviation}},
};
inline constexpr size_t kKvCodecCount = std::size(kKvCodecs);

static constexpr const KvCodecInfo& codec_info(KvCodec codec) {
  return kKvCodecs[static_cast<size_t>(codec)];
}

// A property of all codecs in one integer, kBits for each, which device code can read too.
template <int kBits, typename Property>
static constexpr uint64_t packed_property(const Property& property) {
  static_assert(kKvCodecCount * kBits <= 64);
  uint64_t packed = 0;
  for (size_t i = 0; i < kKvCodecCount; ++i) {
    packed |= static_cast<uint64_t>(property(kKvCodecs[i])) << (i * kBits);
  }
  return packed;
}
inline constexpr uint64_t kCodeBits =
    packed_property<4>([](const KvCodecInfo& info) { return info.bits; });
inline constexpr uint64_t kRotatedCodecs =
    packed_property<1>([](const KvCodecInfo& info) { return info.rotated; });
inline constexpr uint64_t kGroupedCodecs =
    packed_property<1>([](const KvCodecInfo& info) { return info.grouped; });

ONWARD_HOST_DEVICE static constexpr int code_bits(KvCodec codec) {
  return static_cast<int>(kCodeBits >> (static_cast<int>(codec) * 4) & 15u);
}
ONWARD_HOST_DEVICE static constexpr bool is_rotated(KvCodec codec) {
  return (kRotatedCodecs >> static_cast<int>(codec) & 1u) != 0;
}
ONWARD_HOST_DEVICE static constexpr bool is_grouped(KvCodec codec) {
  return (kGroupedCodecs >> static_cast<int>(codec) & 1u) != 0;
}

// Calls visit(std::integral_constant<KvCodec, codec>): the codec as a constant.
template <typename Visit, size_t... kIndex>
static inline void with_codec(KvCodec codec, const Visit& visit, std::index_sequence<kIndex...>) {
  const auto matches = [&](auto constant) {
    if (codec != constant()) return false;
    visit(constant);
    return true;
  };
  static_cast<void>(
      (matches(std::integral_constant<KvCodec, kKvCodecs[kIndex].codec>()) || ...));
}
template <typename Visit>
static inline void with_codec(KvCodec codec, const Visit& visit) {
  with_codec(codec, visit, std::make_index_sequence<kKvCodecCount>());
}

}  // namespace onward
