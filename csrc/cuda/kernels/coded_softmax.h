// The softmax over coded keys and values for some query heads of one kv head, with the same bits as
// on the CPU (cpu/kernels.h, CodedAttendArgs). A code is read once for all heads, and a warp
// computes the softmax of one head. A state is as in exact_softmax.h, with outputs up to coded_dim.
// All threads of a block must call each function.
#pragma once

#include "cuda/kernels/code_words.h"
#include "cuda/kernels/exact_softmax.h"

namespace onward::cuda {

constexpr int kMostHeads = kSoftmaxThreads / 32;  // computed together
constexpr int kTileBlocks = kTileKeys / kBlockKeys;
constexpr int kTileWords = kTileKeys / 4;  // weights of a tile, four in a word
constexpr float kByteLargest = 127.0f;
constexpr float kPartsLargest = 16256.0f;  // 127 * 128: two signed bytes

// The layout of shared memory: offsets in floats.
struct CodedRoom {
  int n;       // coded_dim
  int heads;   // number of heads with space
  int groups;  // groups of coordinates of a value; each has a scale
  int states;  // (2, heads, state)
  int query;   // (heads, n): unchanged, rotated, or rotated back for the sinks
  int fine;    // (heads, n / 4) words; the integers of the query are 128 * coarse + fine
  int coarse;
  int centre;        // (n)
  int weights;       // (heads, 64): scores, then weights
  int value_fine;    // (heads, groups, 16) words: weights times value scales, as integers
  int value_coarse;  // the same
  int value_scales;  // (heads, groups): the scales of these integers
  int of_head;       // (3, heads): query scale, its product with the centre, rescaling
  int floats;        // total size
};

inline CodedRoom coded_room(const LayerCache& cache, int heads) {
  CodedRoom room = {};
  room.n = cache.coded_dim;
  room.heads = heads;
  room.groups = scale_groups(cache.value_codec, room.n);
  const auto take = [&room](int64_t floats) {
    const int begin = room.floats;
    room.floats += static_cast<int>(round_up(floats, 4));
    return begin;
  };
  room.states = take(2 * heads * state_floats(room.n));
  room.query = take(heads * room.n);
  room.fine = take(heads * room.n / 4);
  room.coarse = take(heads * room.n / 4);
  room.centre = take(room.n);
  room.weights = take(heads * kTileKeys);
  room.value_fine = take(heads * room.groups * kTileWords);
  room.value_coarse = take(heads * room.groups * kTileWords);
  room.value_scales = take(heads * room.groups);
  room.of_head = take(3 * heads);
  return room;
}

// The coded blocks of one kv head, and the shared memory and number of its query heads.
struct CodedHeads {
  const LayerCache& cache;
  const CodedRoom& room;
  void* const* blocks;
  int64_t codes_offset;
  int64_t scales_offset;
  float scale;
  int count;  // number of query heads
  float* shared;

  __device__ float* state(int which, int head) const {
    return shared + room.states + (which * room.heads + head) * state_floats(room.n);
  }
  __device__ float* query(int head) const { return shared + room.query + head * room.n; }
  __device__ uint32_t* words(int place, int head, int each) const {
    return reinterpret_cast<uint32_t*>(shared + place) + head * each;
  }
  __device__ float* weights(int head) const { return shared + room.weights + head * kTileKeys; }
  __device__ float& query_scale(int head) const { return shared[room.of_head + head]; }
  __device__ float& centred(int head) const { return shared[room.of_head + room.heads + head]; }
  __device__ float& rescale(int head) const { return shared[room.of_head + 2 * room.heads + head]; }
  __device__ float& value_scale(int head, int g) const {
    return shared[room.value_scales + head * room.groups + g];
  }

  __device__ const char* keys(int64_t block) const {
    return static_cast<const char*>(blocks[block]) + codes_offset;
  }
  __device__ const char* values(int64_t block) const {
    return keys(block) + cache.value_codes_offset;
  }
  __device__ const uint16_t* key_scales(int64_t block) const {
    return reinterpret_cast<const uint16_t*>(static_cast<const char*>(blocks[block]) +
                                             scales_offset);
  }
  __device__ const uint16_t* value_scales(int64_t block) const {
    return key_scales(block) + cache.value_scales_offset / 2;
  }
};

// Writes n, |n| <= 127 * 128, as byte `at` of two words.
__device__ inline void split(int n, int at, uint32_t* fine, uint32_t* coarse) {
  const int upper = (n + 64) >> 7;
  reinterpret_cast<int8_t*>(fine)[at] = static_cast<int8_t>(n - upper * 128);
  reinterpret_cast<int8_t*>(coarse)[at] = static_cast<int8_t>(upper);
}

// Prepares the queries of the heads for coded keys. q: (heads, head_dim). first_keys: the keys of
// block 0 if coded keys are centred, otherwise null.
__device__ inline void prepare_queries(const CodedHeads& c, const RotationSigns& signs,
                                       const float* q, const char* first_keys) {
  const int thread = static_cast<int>(threadIdx.x), n = c.room.n, size = c.cache.head_dim;
  const KvCodec codec = c.cache.key_codec;
  for (int at = thread; at < c.count * n; at += kSoftmaxThreads) {
    const int head = at / n, d = at % n;
    const float x = d < size ? q[head * size + d] : 0.0f;
    c.query(head)[d] = is_rotated(codec) ? signs.turned(d, x) : x;
  }
  if (codec == KvCodec::exact) return sync_block();
  if (is_rotated(codec)) butterflies<kSoftmaxThreads>(c.query(0), n, 1, c.count, n);
  for (int d = thread; d < size; d += kSoftmaxThreads) {
    c.shared[c.room.centre + d] = first_keys != nullptr ? key_centre(c.cache, first_keys, d) : 0.0f;
  }
  sync_block();
  const int head = thread / 32, lane = thread % 32;
  if (head < c.count) {
    float centred = 0.0f;
    for (int d = lane % kSumLanes; d < size; d += kSumLanes) {
      centred = fmaf(q[head * size + d], c.shared[c.room.centre + d], centred);
    }
    centred = fold_lanes(centred);
    uint32_t largest = 0;
    for (int d = lane; d < n; d += 32) {
      const uint32_t bits = magnitude_bits(c.query(head)[d]);
      largest = largest < bits ? bits : largest;
    }
    const Parts parts(largest_bits(largest), is_grouped(codec) ? kPartsLargest : kByteLargest);
    for (int d = lane; d < n; d += 32) {
      const int integer = parts.integer(c.query(head)[d]);
      if (is_grouped(codec)) {
        split(integer, d, c.words(c.room.fine, head, n / 4), c.words(c.room.coarse, head, n / 4));
      } else {
        reinterpret_cast<int8_t*>(c.words(c.room.fine, head, n / 4))[d] =
            static_cast<int8_t>(integer);
      }
    }
    if (lane == 0) {
      c.query_scale(head) = parts.scale;
      c.centred(head) = first_keys != nullptr ? centred : 0.0f;
    }
  }
  sync_block();
}

// Computes the scores of keys [begin, end) of a tile; each thread computes one key for two heads.
template <KvCodec kCodec>
__device__ inline void score_keys(const CodedHeads& c, int64_t tile, int64_t begin, int64_t end) {
  constexpr int kHeads = kMostHeads * kTileKeys / kSoftmaxThreads;
  const int thread = static_cast<int>(threadIdx.x), n = c.room.n;
  const int64_t key = tile * kTileKeys + thread % kTileKeys;
  const int first = thread / kTileKeys * kHeads;
  if (first >= c.count || key < begin || key >= end) return;
  const char* keys = c.keys(key / kBlockKeys);
  const int token = static_cast<int>(key % kBlockKeys);
  float sums[kHeads] = {};
  int heads[kHeads];  // the last head is repeated if there are fewer
  for (int i = 0; i < kHeads; ++i) heads[i] = first + i < c.count ? first + i : c.count - 1;
  if constexpr (kCodec == KvCodec::exact) {
    for (int d = 0; d < c.cache.head_dim; ++d) {
      const float x = load_element(c.cache.dtype, keys, d * kBlockKeys + token);
      for (int i = 0; i < kHeads; ++i) sums[i] = fmaf(x, c.query(heads[i])[d], sums[i]);
    }
    for (int i = 0; i < kHeads; ++i) c.weights(heads[i])[thread % kTileKeys] = sums[i] * c.scale;
  } else {
    const uint32_t* stored = reinterpret_cast<const uint32_t*>(keys);
    const uint16_t* scales = c.key_scales(key / kBlockKeys);
    constexpr bool kGrouped = is_grouped(kCodec);
    const int words = kGrouped ? kCodedGroup / 4 : n / 4;
    for (int g = 0; g < n / 4 / words; ++g) {
      int fine[kHeads] = {}, coarse[kHeads] = {};
#pragma unroll 4
      for (int r = g * words; r < (g + 1) * words; ++r) {
        const uint32_t integers = stored_integers<kCodec, true>(stored, n, r, token);
        for (int i = 0; i < kHeads; ++i) {
          fine[i] = dot4(integers, c.words(c.room.fine, heads[i], n / 4)[r], fine[i]);
          if constexpr (kGrouped) {
            coarse[i] = dot4(integers, c.words(c.room.coarse, heads[i], n / 4)[r], coarse[i]);
          }
        }
      }
      const float scale = half_to_float(scales[g * kBlockKeys + token]);
      for (int i = 0; i < kHeads; ++i) {
        sums[i] = fmaf(static_cast<float>(fine[i] + 128 * coarse[i]), scale, sums[i]);
      }
    }
    for (int i = 0; i < kHeads; ++i) {
      c.weights(heads[i])[thread % kTileKeys] =
          (sums[i] * c.query_scale(heads[i]) + c.centred(heads[i])) * c.scale;
    }
  }
}

// Converts the scores of a tile to weights on the warp of each head: maximum, sums, and integers
// for the values.
__device__ inline void weigh_keys(const CodedHeads& c, int64_t tile, int64_t begin, int64_t end,
                                  int which) {
  const int head = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (head >= c.count) return;
  float* state = c.state(which, head);
  float* weights = c.weights(head);
  const float before = state[0];
  float highest = before;
  bool seen[2];
  float p[2];
  for (int i = 0; i < 2; ++i) {
    const int64_t key = tile * kTileKeys + lane + 32 * i;
    seen[i] = begin <= key && key < end;
    p[i] = weights[lane + 32 * i];
    if (seen[i] && p[i] > highest) highest = p[i];  // a NaN is not a maximum
  }
  for (int mask = 16; mask > 0; mask /= 2) {
    const float other = shuffle_xor(highest, mask);
    if (other > highest) highest = other;
  }
  const float rescale = highest > before ? exponential(before - highest) : 1.0f;
  for (int i = 0; i < 2; ++i) {
    p[i] = seen[i] ? exponential(p[i] - highest) : 0.0f;
    weights[lane + 32 * i] = p[i];
  }
  sync_warp();
  if (lane == 0) {
    state[0] = highest;
    c.rescale(head) = rescale;
  }
  if (lane < kSumLanes) {
    float sum = state[kSumLanes + lane] * rescale;
    for (int i = lane; i < kTileKeys; i += kSumLanes) {
      const int64_t key = tile * kTileKeys + i;
      if (begin <= key && key < end) sum += weights[i];
    }
    state[kSumLanes + lane] = sum;
  }
  if (c.cache.value_codec == KvCodec::exact) return;
  for (int g = 0; g < c.room.groups; ++g) {
    float w[2];
    uint32_t largest = 0;
    for (int i = 0; i < 2; ++i) {
      const int64_t key = tile * kTileKeys + lane + 32 * i;
      w[i] = 0.0f;
      if (!seen[i]) continue;
      const uint16_t* scales = c.value_scales(key / kBlockKeys);
      w[i] = p[i] * half_to_float(scales[g * kBlockKeys + key % kBlockKeys]);
      const uint32_t bits = magnitude_bits(w[i]);
      largest = largest < bits ? bits : largest;
    }
    const Parts parts(largest_bits(largest), kPartsLargest);
    const int row = head * c.room.groups + g;
    for (int i = 0; i < 2; ++i) {
      split(parts.integer(w[i]), lane + 32 * i, c.words(c.room.value_fine, row, kTileWords),
            c.words(c.room.value_coarse, row, kTileWords));
    }
    if (lane == 0) c.value_scale(head, g) = parts.scale;
  }
}

// out = out * rescale + weights * values, over keys [begin, end) of a tile.
template <KvCodec kCodec>
__device__ inline void add_values(const CodedHeads& c, int64_t tile, int64_t begin, int64_t end,
                                  int which) {
  const int n = c.room.n, width = kCodec == KvCodec::exact ? c.cache.head_dim : n;
  for (int d = static_cast<int>(threadIdx.x); d < width; d += kSoftmaxThreads) {
    if constexpr (kCodec == KvCodec::exact) {
      float out[kMostHeads];
      for (int h = 0; h < kMostHeads; ++h) {
        out[h] = h < c.count ? c.state(which, h)[kStateHead + d] * c.rescale(h) : 0.0f;
      }
      for (int64_t key = begin; key < end; ++key) {
        const float x = load_element(c.cache.dtype, c.values(key / kBlockKeys),
                                     key % kBlockKeys * c.cache.value_stride + d);
        for (int h = 0; h < kMostHeads; ++h) {
          if (h < c.count) out[h] = fmaf(x, c.weights(h)[key - tile * kTileKeys], out[h]);
        }
      }
      for (int h = 0; h < kMostHeads; ++h) {
        if (h < c.count) c.state(which, h)[kStateHead + d] = out[h];
      }
    } else {
      const int g = is_grouped(kCodec) ? d / kCodedGroup : 0;
      int fine[kMostHeads] = {}, coarse[kMostHeads] = {};
      for (int b = 0; b < kTileBlocks; ++b) {
        const int64_t block = tile * kTileBlocks + b;
        if ((block + 1) * kBlockKeys <= begin || end <= block * kBlockKeys) continue;
        const uint32_t* stored = reinterpret_cast<const uint32_t*>(c.values(block));
#pragma unroll 4
        for (int quad = 0; quad < 4; ++quad) {
          const uint32_t integers =
              stored_integers<kCodec, false>(stored, n, quad * (n / 16) + d / 16, d % 16);
          for (int h = 0; h < kMostHeads; ++h) {
            if (h >= c.count) continue;
            const int row = h * c.room.groups + g, word = b * 4 + quad;
            fine[h] = dot4(integers, c.words(c.room.value_fine, row, kTileWords)[word], fine[h]);
            coarse[h] =
                dot4(integers, c.words(c.room.value_coarse, row, kTileWords)[word], coarse[h]);
          }
        }
      }
      for (int h = 0; h < kMostHeads; ++h) {
        if (h >= c.count) continue;
        float& out = c.state(which, h)[kStateHead + d];
        out = fmaf(static_cast<float>(fine[h] + 128 * coarse[h]), c.value_scale(h, g),
                   out * c.rescale(h));
      }
    }
  }
}

// score_keys and add_values for the codecs of the cache, which are found by trying each in turn.
template <size_t kIndex = 0>
__device__ inline void score_side(const CodedHeads& c, int64_t tile, int64_t begin, int64_t end) {
  constexpr KvCodec kCodec = kKvCodecs[kIndex].codec;
  if (c.cache.key_codec == kCodec) return score_keys<kCodec>(c, tile, begin, end);
  if constexpr (kIndex + 1 < kKvCodecCount) score_side<kIndex + 1>(c, tile, begin, end);
}

template <size_t kIndex = 0>
__device__ inline void add_side(const CodedHeads& c, int64_t tile, int64_t begin, int64_t end,
                                int which) {
  constexpr KvCodec kCodec = kKvCodecs[kIndex].codec;
  if (c.cache.value_codec == kCodec) return add_values<kCodec>(c, tile, begin, end, which);
  if constexpr (kIndex + 1 < kKvCodecCount) add_side<kIndex + 1>(c, tile, begin, end, which);
}

// Computes the softmax over coded keys [first, last] of one span into the states of the heads.
__device__ inline void attend_coded_span(const CodedHeads& c, int64_t first, int64_t last,
                                         int which) {
  sync_block();  // other threads may still read the states
  for (int head = 0; head < c.count; ++head) {
    float* state = c.state(which, head);
    for (int i = static_cast<int>(threadIdx.x); i < kStateHead + c.room.n; i += kSoftmaxThreads) {
      state[i] = i == 0 ? -kInfinity : 0.0f;
    }
  }
  for (int64_t tile = first / kTileKeys; tile <= last / kTileKeys; ++tile) {
    const int64_t tile_begin = tile * kTileKeys, tile_end = tile_begin + kTileKeys;
    const int64_t begin = first > tile_begin ? first : tile_begin;
    const int64_t end = last + 1 < tile_end ? last + 1 : tile_end;
    sync_block();
    score_side(c, tile, begin, end);
    sync_block();
    weigh_keys(c, tile, begin, end, which);
    sync_block();
    add_side(c, tile, begin, end, which);
  }
  sync_block();
}

}  // namespace onward::cuda
