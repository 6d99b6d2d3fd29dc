// Encodes the keys and values of a cache block. One thread block encodes one side (keys or values)
// of one head, with the same bytes as the CPU (cpu/tasks/encode.cpp). One thread computes each sum
// that the CPU computes in a fixed order: with a codebook, one thread for each token and factor.
#include "cuda/kernels/code_words.h"
#include "cuda/kernels/verbs.h"

namespace onward::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostThresholds = 7;
constexpr int kMostGroups = kMostCodedDim / kCodedGroup;

// The positive integers of a codebook in ascending order.
struct CodeBook {
  int count;  // of positive integers
  float integers[kMostThresholds + 1];
  float thresholds[kMostThresholds];  // half-way between two integers
  float factors[kTurboFactorCount];
  float deviation;
};

struct EncodeCall {
  LayerCache cache;
  const BlockEncoding* blocks;
  CodeBook books[2];  // of keys, of values
  RotationSigns signs;
};

// The keys or the values of a head in shared memory.
struct Side {
  KvCodec codec;
  int n;  // coordinates: coded_dim
  bool keys;
  float* x;         // (n, 16)
  uint8_t* codes;   // (n, 16)
  uint16_t* found;  // scales, (groups, 16)
};

__device__ void copy_exact(const char* from, char* to, int64_t bytes) {
  const uint4* source = reinterpret_cast<const uint4*>(from);
  uint4* target = reinterpret_cast<uint4*>(to);
  for (int64_t i = threadIdx.x; i < bytes / 16; i += kThreads) target[i] = source[i];
}

__device__ void take_keys(const LayerCache& cache, const char* keys, const char* first_keys,
                          const Side& side) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int d = thread / kCodeTokens; d < side.n; d += kThreads / kCodeTokens) {
    const int i = d * kCodeTokens + thread % kCodeTokens;
    const bool padding = d >= cache.head_dim;
    float x = padding ? 0.0f : load_element(cache.dtype, keys, i);
    if (!padding && first_keys != nullptr) x -= key_centre(cache, first_keys, d);
    side.x[i] = x;
  }
}

__device__ void take_values(const LayerCache& cache, const char* values, const Side& side) {
  for (int at = static_cast<int>(threadIdx.x); at < side.n * kCodeTokens; at += kThreads) {
    const int d = at % side.n, token = at / side.n;
    side.x[d * kCodeTokens + token] =
        d < cache.head_dim
            ? load_element(cache.dtype, values, int64_t{token} * cache.value_stride + d)
            : 0.0f;
  }
}

__device__ bool is_finite(float x) { return magnitude_bits(x) < kNotFinite; }
__device__ uint16_t stored_scale(bool finite, float scale) {
  return static_cast<uint16_t>(half_of(finite ? scale : float_of(0x7fc00000u)));
}

// One thread for each token computes the scale; all threads compute codes.
__device__ void encode_bytes(const Side& side) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kCodeTokens) {
    bool finite = true;
    float largest = 0.0f;
    for (int i = thread; i < side.n * kCodeTokens; i += kCodeTokens) {
      finite = finite && is_finite(side.x[i]);
      largest = fmaxf(largest, fabsf(side.x[i]));
    }
    side.found[thread] = stored_scale(finite, largest / 127.0f);
  }
  sync_block();
  for (int at = thread; at < side.n * kCodeTokens; at += kThreads) {
    const float scale = half_to_float(side.found[at % kCodeTokens]);
    const float scaled = scale > 0.0f ? side.x[at] / scale : 0.0f;  // 0 if it would be a NaN
    const float integer = rintf(fminf(fmaxf(scaled, -127.0f), 127.0f));
    side.codes[at] = static_cast<uint8_t>(128 + static_cast<int>(integer));
  }
}

// A thread encodes a group of 32 of a token.
__device__ void encode_groups(const Side& side) {
  for (int at = static_cast<int>(threadIdx.x); at < side.n / kCodedGroup * kCodeTokens;
       at += kThreads) {
    const int begin = at / kCodeTokens * kCodedGroup * kCodeTokens + at % kCodeTokens;
    const float* x = side.x + begin;
    uint8_t* codes = side.codes + begin;
    bool finite = true;
    float extreme = 0.0f;
    for (int i = 0; i < kCodedGroup; ++i) {
      const float value = x[i * kCodeTokens];
      finite = finite && is_finite(value);
      if (fabsf(extreme) < fabsf(value)) extreme = value;
    }
    const float scale = fabsf(extreme) < 0x1p-120f ? 0.0f : extreme / -8.0f;
    const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
    side.found[at] = stored_scale(finite, scale);
    for (int i = 0; i < kCodedGroup; ++i) {
      const float shifted = finite ? x[i * kCodeTokens] * inverse + 8.5f : 8.5f;
      codes[i * kCodeTokens] = static_cast<uint8_t>(shifted < 15.0f ? shifted : 15.0f);
    }
  }
}

// How many magnitudes above the smallest one.
__device__ int level_of(const CodeBook& book, float step, float size) {
  int level = 0;
  for (; level < book.count - 1; ++level) {
    if (!(book.thresholds[level] * step < size)) break;
  }
  return level;
}

struct Fit {
  float step;
  float product;  // dot product of vector and integers
  float gain;     // product^2 / square, which grows with the cosine
  float square;   // sum of squares of the integers
};

__device__ Fit fit_of(const CodeBook& book, const float* x, int n, float step) {
  Fit fit = {step, 0.0f, 0.0f, 0.0f};
  for (int i = 0; i < n; ++i) {
    const float size = fabsf(x[i * kCodeTokens]);
    const float integer = book.integers[level_of(book, step, size)];
    fit.product += size * integer;
    fit.square += integer * integer;  // below 2^24: exact
  }
  fit.gain = (fit.product / fit.square) * fit.product;
  return fit;
}

struct BookShared {
  float norms[kCodeTokens];  // squared
  float units[kCodeTokens];
  float steps[kCodeTokens];  // the step of the best factor
  Fit fits[kTurboFactorCount * kCodeTokens];
};

__device__ void encode_in_codebook(const CodeBook& book, const Side& side, BookShared& shared) {
  const int thread = static_cast<int>(threadIdx.x), token = thread % kCodeTokens;
  if (thread < kCodeTokens) {
    float norm = 0.0f;
    for (int i = 0; i < side.n; ++i) {
      const float x = side.x[i * kCodeTokens + token];
      norm += x * x;
    }
    shared.norms[token] = norm;
    shared.units[token] = sqrtf(norm / static_cast<float>(side.n)) / book.deviation;
  }
  sync_block();
  if (thread < kTurboFactorCount * kCodeTokens) {
    const float step = shared.units[token] * book.factors[thread / kCodeTokens];
    shared.fits[thread] = fit_of(book, side.x + token, side.n, step);
  }
  sync_block();
  if (thread < kCodeTokens) {
    int best = token;
    for (int other = token + kCodeTokens; other < kTurboFactorCount * kCodeTokens;
         other += kCodeTokens) {
      if (shared.fits[best].gain < shared.fits[other].gain) best = other;
    }
    const Fit fit = shared.fits[best];
    shared.steps[token] = fit.step;
    const float norm = shared.norms[token];
    const float scale = side.keys ? norm / fit.product : fit.product / fit.square;
    side.found[token] = stored_scale(is_finite(norm), norm > 0.0f ? scale : 0.0f);
  }
  sync_block();
  for (int at = thread; at < side.n * kCodeTokens; at += kThreads) {
    const float x = side.x[at];
    const int level = level_of(book, shared.steps[at % kCodeTokens], fabsf(x));
    const int code = x < 0.0f ? book.count - 1 - level : book.count + level;
    side.codes[at] = static_cast<uint8_t>(code);
  }
}

// Byte `at` of register r (cpu/kernels.h).
__device__ uint32_t code_at(const Side& side, int r, int at) {
  if (side.keys) return side.codes[(4 * r + at % 4) * kCodeTokens + at / 4];
  const int quad = r / (side.n / 16), d = r % (side.n / 16) * 16 + at / 4;
  return side.codes[d * kCodeTokens + 4 * quad + at % 4];
}

// Byte `at` of stored register i.
__device__ uint32_t stored_byte(const Side& side, int bits, int i, int at) {
  if (bits == 8) return code_at(side, i, at) ^ (side.keys ? 0 : 0x80);
  if (bits == 4) return code_at(side, 2 * i, at) | code_at(side, 2 * i + 1, at) << 4;
  uint32_t packed = 0;
  const int lower = side.n / 16;  // stored registers with the two lower bits
  if (i < lower) {
    for (int j = 0; j < 4; ++j) packed |= (code_at(side, 4 * i + j, at) & 3) << (2 * j);
  } else {
    for (int j = 0; j < 8; ++j) packed |= (code_at(side, 8 * (i - lower) + j, at) >> 2 & 1) << j;
  }
  return packed;
}

__device__ void store_codes(const Side& side, char* codes, char* scales) {
  const int bits = code_bits(side.codec), words = side.n * kCodeTokens * bits / 32;
  uint32_t* stored = reinterpret_cast<uint32_t*>(codes);
  for (int word = static_cast<int>(threadIdx.x); word < words; word += kThreads) {
    const int i = word / kRegisterWords, at = word % kRegisterWords * 4;
    uint32_t packed = 0;
    for (int j = 0; j < 4; ++j) packed |= stored_byte(side, bits, i, at + j) << (8 * j);
    stored[word] = packed;
  }
  const int count = scale_groups(side.codec, side.n) * kCodeTokens;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    reinterpret_cast<uint16_t*>(scales)[i] = side.found[i];
  }
}

// The bytes before the coordinates and their codes.
struct alignas(16) SideShared {
  BookShared book;
  uint16_t found[kMostGroups * kCodeTokens];
};

// Grid: (encodings, kv heads, sides). Four blocks on a multiprocessor, because ptxas would spill
// with more.
__global__ void __launch_bounds__(kThreads, 4) encode_side(EncodeCall c) {
  SideShared& shared = *reinterpret_cast<SideShared*>(shared_memory());
  const LayerCache& cache = c.cache;
  const BlockEncoding& block = c.blocks[blockIdx.x];
  const int64_t head = blockIdx.y;
  const bool keys = blockIdx.z == 0;
  const KvCodec codec = keys ? cache.key_codec : cache.value_codec;
  const int64_t key_bytes = cache.values_offset;
  const int64_t key_place = cache.keys_offset + head * cache.head_bytes;
  const char* exact =
      static_cast<const char*>(block.exact) + key_place + (keys ? 0 : cache.values_offset);
  char* codes = static_cast<char*>(block.coded) + cache.codes_offset +
                head * cache.head_codes_bytes + (keys ? 0 : cache.value_codes_offset);
  if (codec == KvCodec::exact) {
    copy_exact(exact, codes, keys ? key_bytes : cache.head_bytes - key_bytes);
    return;
  }
  char* scales = static_cast<char*>(block.coded) + cache.scales_offset +
                 head * cache.head_scales_bytes + (keys ? 0 : cache.value_scales_offset);
  Side side;
  side.codec = codec;
  side.n = cache.coded_dim;
  side.keys = keys;
  side.x = reinterpret_cast<float*>(&shared + 1);
  side.codes = reinterpret_cast<uint8_t*>(side.x + side.n * kCodeTokens);
  side.found = shared.found;
  if (keys) {
    const bool centred = block.first != nullptr && is_rotated(codec);
    const char* first = static_cast<const char*>(block.first);
    take_keys(cache, exact, centred ? first + key_place : nullptr, side);
  } else {
    take_values(cache, exact, side);
  }
  if (is_rotated(codec)) {
    sync_block();
    for (int at = static_cast<int>(threadIdx.x); at < side.n * kCodeTokens; at += kThreads) {
      side.x[at] = c.signs.turned(at / kCodeTokens, side.x[at]);
    }
    butterflies<kThreads>(side.x, side.n, kCodeTokens, kCodeTokens, 1);
  }
  sync_block();
  if (is_grouped(codec)) {
    encode_groups(side);
  } else if (codec == KvCodec::int8) {
    encode_bytes(side);
  } else {
    encode_in_codebook(c.books[keys ? 0 : 1], side, shared.book);
  }
  sync_block();
  store_codes(side, codes, scales);
}

CodeBook book_of(KvCodec codec) {
  CodeBook book = {};
  const int8_t* integers = codec_info(codec).book.integers;
  if (integers == nullptr) return book;
  book.count = 1 << (code_bits(codec) - 1);
  book.deviation = codec_info(codec).book.deviation;
  for (int i = 0; i < book.count; ++i) {
    book.integers[i] = static_cast<float>(integers[book.count + i]);
    if (i > 0) {
      const int both = integers[book.count + i - 1] + integers[book.count + i];
      book.thresholds[i - 1] = 0.5f * static_cast<float>(both);
    }
  }
  for (int f = 0; f < kTurboFactorCount; ++f) book.factors[f] = kTurboFactors[f];
  return book;
}

}  // namespace

void encode(Stream& stream, const LayerCache& cache, const BlockEncoding* blocks, int64_t count) {
  if (count == 0) return;
  const EncodeCall call = {
      cache, blocks, {book_of(cache.key_codec), book_of(cache.value_codec)}, rotation_signs()};
  const size_t coordinates = static_cast<size_t>(cache.coded_dim) * kCodeTokens;
  const Grid grid = {count, cache.num_kv_heads, 2, kThreads,
                     sizeof(SideShared) + coordinates * (sizeof(float) + 1)};
  launch(stream, grid, encode_side, call);
}

}  // namespace onward::cuda
