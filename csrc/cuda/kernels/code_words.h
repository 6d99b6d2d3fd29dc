// Common parts of encoding and of attention over codes: coded keys and values as words of four
// bytes, and the rotation, with the same definitions as on the CPU (cpu/kernels.h).
#pragma once

#include "backend/kv_codecs.h"
#include "cuda/kernels/numbers.h"
#include "cuda/kernels/step.h"

namespace onward::cuda {

constexpr int kCodedGroup = 32;  // coordinates that share a scale in a grouped codec
constexpr int kCodeTokens = 16;  // tokens of a block
constexpr int kRegisterWords = 16;
constexpr int kMostCodedDim = 512;

// Scales of a vector of n coordinates.
__host__ __device__ constexpr int scale_groups(KvCodec codec, int n) {
  return is_grouped(codec) ? n / kCodedGroup : 1;
}

// The centre that is subtracted from coordinate d of coded keys: the mean of the keys at positions
// 4 to 15 in block 0, (head_dim, 16); 0 in the pairs that are not centred.
__device__ inline float key_centre(const LayerCache& cache, const char* first_keys, int d) {
  constexpr int kFirst = 4, kCount = kCodeTokens - kFirst;  // the first four tokens are sinks
  if (d % (cache.head_dim / 2) < cache.first_centred_pair) return 0.0f;
  float sum = 0.0f;
  for (int t = kFirst; t < kCodeTokens; ++t) {
    sum += load_element(cache.dtype, first_keys, d * kCodeTokens + t);
  }
  return sum * (1.0f / static_cast<float>(kCount));
}

__host__ __device__ constexpr uint32_t table_word(const int8_t* integers) {
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word |= uint32_t{static_cast<uint8_t>(integers[i])} << (8 * i);
  return word;
}

// The codebook of a codec as numbers: whether there is one, and four of its integers in a word.
// Device code can neither call a function of the host nor refer to its arrays.
template <KvCodec kCodec>
inline constexpr bool kHasBook = codec_info(kCodec).book.integers != nullptr;
template <KvCodec kCodec, int kWord>
inline constexpr uint32_t kBookWord = table_word(codec_info(kCodec).book.integers + 4 * kWord);

// Converts codes of less than a byte, in the bytes of a word, to their values as signed bytes.
template <KvCodec kCodec>
__device__ inline uint32_t integers_of(uint32_t codes) {
  if constexpr (!kHasBook<kCodec>) {
    static_assert(code_bits(kCodec) == 4);
    const uint32_t nibbles = codes ^ 0x08080808u;  // two's complement; the sign is extended below
    return nibbles | (nibbles & 0x08080808u) * 0x1e;
  } else {
    const uint32_t pairs = (codes | codes >> 4) & 0x00ff00ffu;
    const uint32_t nibbles = pairs | pairs >> 8;  // of the lower half
    if constexpr (code_bits(kCodec) == 2) {
      constexpr uint32_t kWord = kBookWord<kCodec, 0>;
      return pick_bytes(kWord, kWord, nibbles);
    } else if constexpr (code_bits(kCodec) == 3) {
      constexpr uint32_t kLow = kBookWord<kCodec, 0>, kHigh = kBookWord<kCodec, 1>;
      return pick_bytes(kLow, kHigh, nibbles);
    } else {
      constexpr uint32_t k0 = kBookWord<kCodec, 0>, k1 = kBookWord<kCodec, 1>,
                         k2 = kBookWord<kCodec, 2>, k3 = kBookWord<kCodec, 3>;
      const uint32_t place = nibbles & 0x7777u;
      return pick_bytes(pick_bytes(k0, k1, place), pick_bytes(k2, k3, place),
                        0x3210u | (nibbles & 0x8888u) >> 1);
    }
  }
}

// Word `lane` of register r of the stored keys or values of a head (n / 4 registers), as integers.
template <KvCodec kCodec, bool kKeys>
__device__ inline uint32_t stored_integers(const uint32_t* stored, int n, int r, int lane) {
  if constexpr (code_bits(kCodec) == 8) {
    return stored[r * kRegisterWords + lane] ^ (kKeys ? 0x80808080u : 0);
  } else if constexpr (code_bits(kCodec) == 4) {
    const uint32_t pair = stored[r / 2 * kRegisterWords + lane];
    return integers_of<kCodec>(pair >> (r % 2 * 4) & 0x0f0f0f0fu);
  } else {
    uint32_t codes = stored[r / 4 * kRegisterWords + lane] >> (r % 4 * 2) & 0x03030303u;
    if constexpr (code_bits(kCodec) == 3) {
      const uint32_t upper = stored[(n / 16 + r / 8) * kRegisterWords + lane];
      codes |= (upper >> (r % 8) & 0x01010101u) << 2;
    }
    return integers_of<kCodec>(codes);
  }
}

// The signs of codebooks.h as an argument of a kernel, because kernels cannot read host arrays.
struct RotationSigns {
  uint32_t words[kMostCodedDim / 32];
  // Returns the value, negated if the rotation negates coordinate i.
  __device__ float turned(int i, float value) const {
    return (words[i / 32] >> (i % 32) & 1u) != 0 ? -value : value;
  }
};
inline RotationSigns rotation_signs() {
  RotationSigns signs;
  for (int i = 0; i < kMostCodedDim / 32; ++i) signs.words[i] = kRotationSigns[i];
  return signs;
}

// 1 / sqrt(size) for a power of two, rounded once.
__device__ inline float inverse_root(int size) {
  float root = 1.0f;
  for (; size >= 4; size /= 4) root *= 0.5f;
  return size == 2 ? root * 0.707106781f : root;
}

// The Hadamard transform, with its division by the square root, of `count` vectors of n coordinates
// in shared memory. Coordinate i of vector v is x[i * step + v * vector]. All threads of the block
// must call it, with a barrier before and after.
template <int kThreads>
__device__ inline void butterflies(float* x, int n, int step, int count, int vector) {
  const int thread = static_cast<int>(threadIdx.x);
  const bool apart = step == 1;  // neighbouring threads use neighbouring floats
  sync_block();
  // n is a sum of powers of two; each power is a block, the largest first.
  int begin = 0;
  for (int size = kMostCodedDim; size >= kCodedGroup; size /= 2) {
    if (begin + size > n) continue;
    for (int stride = 1; stride < size; stride *= 2) {
      for (int pair = thread; pair < size / 2 * count; pair += kThreads) {
        const int v = apart ? pair / (size / 2) : pair % count;
        const int p = apart ? pair % (size / 2) : pair / count;
        const int i = begin + p / stride * 2 * stride + p % stride;
        float* a = x + i * step + v * vector;
        float* b = a + stride * step;
        const float left = *a, right = *b;
        *a = left + right;
        *b = left - right;
      }
      sync_block();
    }
    const float root = inverse_root(size);
    for (int at = thread; at < size * count; at += kThreads) {
      x[(begin + at / count) * step + at % count * vector] *= root;
    }
    begin += size;
  }
  sync_block();
}

// The largest magnitude of the lanes of a warp, as bits that have the order of the magnitudes.
// Values that are not finite are the largest.
constexpr uint32_t kNotFinite = 0x7f800000u;
__device__ inline uint32_t magnitude_bits(float value) { return bits_of(value) & 0x7fffffffu; }
__device__ inline uint32_t largest_bits(uint32_t bits) {
  for (int mask = 16; mask > 0; mask /= 2) {
    const uint32_t other = shuffle_xor(bits, mask);
    bits = bits < other ? other : bits;
  }
  return bits;
}

// Converts numbers up to the magnitude of `bits` to integers up to `most`, times a scale.
struct Parts {
  float inverse;
  float scale;
  __device__ Parts(uint32_t bits, float most) {
    const bool finite = bits < kNotFinite;
    const float largest = float_of(bits);
    const bool empty = finite && largest < 0x1p-100f;
    inverse = empty || !finite ? 0.0f : most / largest;
    scale = empty ? 0.0f : finite ? largest / most : float_of(0x7fc00000u);
  }
  __device__ int integer(float x) const {
    return scale != scale ? 0 : static_cast<int>(rintf(x * inverse));
  }
};

}  // namespace onward::cuda
