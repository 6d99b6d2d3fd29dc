// Parts of attention in tiles (attend_tiles.cu): the arguments of a launch, the rows of a block,
// the layout of its shared memory, and the copy of keys and values to shared memory.
#pragma once

#include "cuda/kernels/numbers.h"
#include "cuda/kernels/verbs.h"

namespace onward::cuda::tiles {

constexpr int kTileKeys = 64;
constexpr int kBlockKeys = CacheLayout::kBlockTokens;
constexpr int kWarpRows = 16;
constexpr int kMostDim = 128;             // of a head; more outputs do not fit in the registers
constexpr int kKeyTiles = kTileKeys / 8;  // of 8 columns of a tensor core
constexpr int kStateHead = 4;             // a state is: maximum, sum, 2 unused; then the outputs
constexpr int kValuePadding = 16;         // bytes between rows, so that rows use different banks

// The split of spans over blocks. Rows of later tokens see later keys, so a block may touch one
// span more than each of its rows.
struct Cut {
  int64_t row_spans = 0;    // largest number for one row: states of a row and head
  int64_t block_spans = 0;  // largest number for the rows of a block: blocks that share them
  __host__ __device__ bool shared() const { return block_spans > 0; }
};

struct Call {
  AttendLayerArgs args;
  LayerCache cache;
  StepView step;
  int64_t out_stride;
  int64_t tiles_of_slice;  // of rows
  Cut cut;
  float* states;  // (rows, heads, cut.row_spans, state)
};

template <bool kBf16>
struct Half {
  static __device__ uint32_t of(float x) { return kBf16 ? bf16_of(x) : half_of(x); }
  static __device__ float value(uint32_t bits) {
    return kBf16 ? bf16_to_float(bits) : half_to_float(bits);
  }
  // Two numbers as two pairs of halves: high + low is the number, with twice the digits of a half.
  static __device__ void split(float a, float b, uint32_t& high, uint32_t& low) {
    const uint32_t high_a = of(a), high_b = of(b);
    high = high_a | high_b << 16;
    low = of(a - value(high_a)) | of(b - value(high_b)) << 16;
  }
  static __device__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    const uint32_t b[2] = {b0, b1};
    if constexpr (kBf16) {
      mma_bf16(d, a, b);
    } else {
      mma_f16(d, a, b);
    }
  }
};

// The rows of a slice: row i is token i / group of the slice, head i % group of the kv head.
struct Rows {
  SliceEntry slice;
  int64_t count;
  int group;
  int64_t window;

  __device__ int64_t clamped(int64_t row) const { return row < count ? row : count - 1; }
  __device__ int64_t position(int64_t row) const {
    return slice.first_position + clamped(row) / group;
  }
  __device__ int64_t first_key(int64_t row) const {
    const int64_t at = position(row);
    return window > 0 && window <= at ? at - window + 1 : 0;
  }
};

// Shared memory of a block: kStages tiles of keys and values, flags of values that are not finite,
// and the queries and merged outputs of each lane.
template <int kDim, int kWarps>
struct Layout {
  static constexpr int kStages = 2;
  static constexpr int kKeys = 0;
  static constexpr int kKeysBytes = kDim * kTileKeys * 2;
  static constexpr int kValueRow = kDim * 2 + kValuePadding;
  static constexpr int kStage = kKeysBytes + kTileKeys * kValueRow;
  static constexpr int kFlags = kStages * kStage;
  static constexpr int kQueries = kFlags + kTileKeys * 4;
  static constexpr int kMerged = kQueries + kWarps * kWarpRows * kDim * 4;
  static constexpr int kBytes = kMerged + kWarps * kWarpRows * kDim * 4;
  // The blocks that the shared memory of the largest multiprocessor holds: 228 KiB, of which each
  // block takes 1 KiB more. With this bound, ptxas does not save registers for blocks that do not fit
  // in any case. 0 (no bound): registers are as scarce as shared memory, and ptxas must save them.
  static constexpr int kResident = (228 << 10) / (kBytes + (1 << 10));
  static constexpr int kLeastBlocks = kResident * kWarps * 32 * 255 <= (64 << 10) ? kResident : 0;
};

// Copies the keys and values of tile `tile` to shared memory. It skips blocks from key `end` on, which
// the slice does not have. Dimensions beyond the head size are zero.
template <int kDim, int kWarps>
__device__ void fetch(const Call& c, void* const* blocks, int64_t keys_offset, int tile, int end,
                      char* stage) {
  using L = Layout<kDim, kWarps>;
  const int head_dim = c.cache.head_dim;
  const int key_pieces = head_dim * 2, value_pieces = head_dim / 8;  // 16 bytes each: block, row
  const int first = tile * (kTileKeys / kBlockKeys);
  for (int b = 0; b < kTileKeys / kBlockKeys; ++b) {
    const bool there = (first + b) * kBlockKeys < end && blocks[first + b] != nullptr;
    const char* keys = there ? static_cast<const char*>(blocks[first + b]) + keys_offset : nullptr;
    char* const to = stage + b * kDim * kBlockKeys * 2;
    for (int i = static_cast<int>(threadIdx.x); i < key_pieces; i += kWarps * 32) {
      if (there) copy_async16(to + i * 16, keys + i * 16);
    }
    char* const rows = stage + L::kKeysBytes + b * kBlockKeys * L::kValueRow;
    for (int i = static_cast<int>(threadIdx.x); i < kBlockKeys * value_pieces; i += kWarps * 32) {
      const int row = i / value_pieces, piece = i % value_pieces;
      if (there) {
        copy_async16(rows + row * L::kValueRow + piece * 16,
                     keys + c.cache.values_offset + row * c.cache.value_stride * 2 + piece * 16);
      }
    }
  }
}

// Sets values to zero that no row may use: values of keys from `end` on, which are not written yet,
// and values that are not finite, whose keys are flagged. All threads of the block must call it.
template <int kDim, int kWarps, bool kBf16>
__device__ void clear_values(char* values, int end, int head_dim, int32_t* flags) {
  using L = Layout<kDim, kWarps>;
  constexpr uint32_t kExponent = kBf16 ? 0x7f80u : 0x7c00u;
  for (int i = static_cast<int>(threadIdx.x); i < kTileKeys; i += kWarps * 32) flags[i] = 0;
  sync_block();
  for (int i = static_cast<int>(threadIdx.x); i < kTileKeys * head_dim; i += kWarps * 32) {
    const int key = i / head_dim;
    uint16_t& value = reinterpret_cast<uint16_t*>(values + key * L::kValueRow)[i % head_dim];
    if (key >= end) {
      value = 0;
    } else if ((value & kExponent) == kExponent) {
      value = 0;
      flags[key] = 1;  // several threads may write the same value
    }
  }
  sync_block();
}

}  // namespace onward::cuda::tiles
