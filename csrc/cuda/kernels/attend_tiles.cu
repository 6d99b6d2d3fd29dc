// Attention over a cache of 16 bits on tensor cores, with the tiling of FlashAttention-2 (Dao
// 2023). A warp has 16 rows of one sequence and kv head: the query heads of that kv head, for one
// or several tokens. Decode and prefill use the same kernel, and a row has the same bits in both:
// an online softmax over tiles of 64 keys starts again in each span of 512, both at absolute
// positions, and spans are merged in ascending order, two at a time. If a step has few rows, blocks
// share the spans of a row, and a second kernel merges.
//
// Queries and softmax weights are 32-bit numbers. The tensor core gets each as the sum of two
// 16-bit numbers. A key that a row does not see does not affect it, even if the key is not finite.
#include <algorithm>

#include "cuda/kernels/attend_tiles.h"

namespace onward::cuda {
namespace {

using namespace tiles;

template <int kDim, int kWarps, bool kBf16>
__global__ void
__launch_bounds__(kWarps * 32, Layout<kDim, kWarps>::kLeastBlocks) attend_rows(Call c) {
  using L = Layout<kDim, kWarps>;
  using H = Half<kBf16>;
  constexpr int kSteps = kDim / 16;  // of the tensor core along the head
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int g = lane / 4, t = lane % 4;
  const int64_t slice_number = blockIdx.x / c.tiles_of_slice;
  const int kv_head = static_cast<int>(blockIdx.y);
  Rows rows;
  rows.slice = c.step.slices[slice_number];
  rows.group = static_cast<int>(c.args.num_heads / c.cache.num_kv_heads);
  rows.count = static_cast<int64_t>(rows.slice.tokens) * rows.group;
  rows.window = c.cache.window;
  const int64_t block_first = blockIdx.x % c.tiles_of_slice * kWarps * kWarpRows;
  if (block_first >= rows.count) return;  // this slice has fewer rows than the longest
  const int64_t block_last = rows.clamped(block_first + kWarps * kWarpRows - 1);
  // The keys that any row of the block sees: the first row sees the earliest, the last row the
  // latest.
  const int64_t earliest = rows.first_key(block_first), latest = rows.position(block_last);
  const int64_t first_span = earliest / kSpanKeys + (c.cut.shared() ? blockIdx.z : 0);
  if (first_span > latest / kSpanKeys) return;
  // From here on, keys, tiles and spans are counted from this span. 32 bits are enough for them, and
  // 64 bits would need more registers than there are.
  const auto number = [&](int64_t key) { return static_cast<int>(key - first_span * kSpanKeys); };
  const int earliest_key = number(earliest), latest_key = number(latest);
  const int end_key = number(rows.slice.first_position + rows.slice.tokens);
  const int end_span = c.cut.shared() ? 1 : latest_key / kSpanKeys + 1;
  // The keys that all rows of the block see.
  const int common_first = number(rows.first_key(block_last));
  const int common_last = number(rows.position(block_first));
  void* const* blocks = c.step.tables[(slice_number * c.step.groups + c.cache.group) * 2] +
                        first_span * (kSpanKeys / kBlockKeys);
  const int64_t keys_offset = c.cache.keys_offset + kv_head * c.cache.head_bytes;
  char* const shared = shared_memory();
  int32_t* const flags = reinterpret_cast<int32_t*>(shared + L::kFlags);
  // (outputs of a lane, lanes): a lane reads only its own values.
  float* const merged =
      reinterpret_cast<float*>(shared + L::kMerged) + warp * kWarpRows * kDim + lane;

  // Dimensions beyond the head size are zero; they are written once.
  const int head_dim = c.cache.head_dim;
  for (int s = 0; s < L::kStages; ++s) {
    char* const stage = shared + s * L::kStage;
    for (int i = static_cast<int>(threadIdx.x); i < L::kStage / 4; i += kWarps * 32) {
      if (head_dim < kDim) reinterpret_cast<uint32_t*>(stage)[i] = 0;
    }
  }
  sync_block();

  // Queries of rows g and g + 8, in the order of the left operand of a tensor core.
  bool there[2];  // in the slice
  int64_t token[2], head[2];
  int first_seen[2], last_seen[2];
  const float* query[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int64_t row = block_first + warp * kWarpRows + g + i * 8, at = rows.clamped(row);
    there[i] = row == at;
    token[i] = rows.slice.first_row + at / rows.group;
    head[i] = static_cast<int64_t>(kv_head) * rows.group + at % rows.group;
    first_seen[i] = number(rows.first_key(row));
    last_seen[i] = number(rows.position(row));
    query[i] = c.args.q + token[i] * c.args.q_stride + head[i] * head_dim;
  }
  // (steps, high and low, lanes)
  uint4* const queries =
      reinterpret_cast<uint4*>(shared + L::kQueries) + warp * kSteps * 2 * 32 + lane;
  for (int step = 0; step < kSteps; ++step) {
    uint32_t high[4], low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int dim = step * 16 + i / 2 * 8 + t * 2;
      const float* from = query[i % 2] + dim;
      const bool stored = dim < head_dim;
      H::split(stored ? from[0] : 0.0f, stored ? from[1] : 0.0f, high[i], low[i]);
    }
    queries[step * 64] = {high[0], high[1], high[2], high[3]};
    queries[step * 64 + 32] = {low[0], low[1], low[2], low[3]};
  }

  const float scale = c.args.scale;
  float merged_maximum[2] = {}, merged_sum[2] = {};

  for (int span = 0; span < end_span; ++span) {
    const int span_begin = span * kSpanKeys;
    const int first_key = earliest_key > span_begin ? earliest_key : span_begin;
    const int span_last = span_begin + kSpanKeys - 1;
    const int last_key = latest_key < span_last ? latest_key : span_last;
    const int first_tile = first_key / kTileKeys, last_tile = last_key / kTileKeys;
    float maximum[2] = {-kInfinity, -kInfinity}, sum[2] = {};
    float out[kDim / 8][4] = {};
    fetch<kDim, kWarps>(c, blocks, keys_offset, first_tile, end_key, shared);
    commit_copies();
    for (int tile = first_tile; tile <= last_tile; ++tile) {
      char* const stage = shared + (tile - first_tile) % L::kStages * L::kStage;
      if (tile < last_tile) {
        fetch<kDim, kWarps>(c, blocks, keys_offset, tile + 1, end_key,
                            shared + (tile + 1 - first_tile) % L::kStages * L::kStage);
      }
      commit_copies();
      wait_copies<1>();
      sync_block();
      const int begin_key = tile * kTileKeys;
      // Whether a row of the block does not see a key of the tile.
      const bool edge = begin_key + kTileKeys - 1 > common_last || begin_key < common_first;
      if (edge) {
        clear_values<kDim, kWarps, kBf16>(stage + L::kKeysBytes, end_key - begin_key, head_dim,
                                          flags);
      }

      // Scores: (16 rows, 64 keys).
      float scores[kKeyTiles][4] = {};
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const uint4 high = queries[step * 64], low = queries[step * 64 + 32];
        const uint32_t step_high[4] = {high.x, high.y, high.z, high.w};
        const uint32_t step_low[4] = {low.x, low.y, low.z, low.w};
#pragma unroll
        for (int pair = 0; pair < kKeyTiles / 2; ++pair) {  // one block of the cache
          const int dim = step * 16 + lane / 8 % 2 * 8 + lane % 8;
          uint32_t keys[4];
          load_transposed(keys, stage + ((pair * kDim + dim) * kBlockKeys + lane / 16 * 8) * 2);
          H::multiply(scores[2 * pair], step_high, keys[0], keys[1]);
          H::multiply(scores[2 * pair], step_low, keys[0], keys[1]);
          H::multiply(scores[2 * pair + 1], step_high, keys[2], keys[3]);
          H::multiply(scores[2 * pair + 1], step_low, keys[2], keys[3]);
        }
      }
      float highest[2] = {-kInfinity, -kInfinity};
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float& score = scores[n][i];
          score *= scale;
          if (edge) {
            const int in_tile = n * 8 + t * 2 + i % 2;
            const int key = begin_key + in_tile;
            if (key < first_seen[i / 2] || key > last_seen[i / 2]) {
              score = -kInfinity;
            } else if (flags[in_tile] != 0) {
              score = float_of(0x7fc00000u);
            }
          }
          if (score > highest[i / 2]) highest[i / 2] = score;
        }
      }
      float rescale[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int mask = 1; mask <= 2; mask *= 2) {
          const float other = shuffle_xor(highest[i], mask);
          if (other > highest[i]) highest[i] = other;
        }
        const bool higher = highest[i] > maximum[i];
        rescale[i] = higher ? exponential(maximum[i] - highest[i]) : 1.0f;
        if (higher) maximum[i] = highest[i];
        sum[i] *= rescale[i];
      }
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = begin_key + n * 8 + t * 2 + i % 2;
          const bool sees = !edge || (first_seen[i / 2] <= key && key <= last_seen[i / 2]);
          float& weight = scores[n][i];
          weight = sees ? exponential(weight - maximum[i / 2]) : 0.0f;
          sum[i / 2] += weight;
        }
      }
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) out[n][i] *= rescale[i / 2];
      }
      // Outputs: (16 rows, head_dim) += weights (16, 64) values (64, head_dim).
#pragma unroll
      for (int step = 0; step < kTileKeys / 16; ++step) {
        uint32_t weights_high[4], weights_low[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* pair = &scores[2 * step + i / 2][i % 2 * 2];
          H::split(pair[0], pair[1], weights_high[i], weights_low[i]);
        }
#pragma unroll
        for (int n = 0; n < kDim / 16; ++n) {
          const int key = step * 16 + lane / 8 % 2 * 8 + lane % 8;
          uint32_t values[4];
          load_transposed(
              values, stage + L::kKeysBytes + key * L::kValueRow + (n * 16 + lane / 16 * 8) * 2);
          H::multiply(out[2 * n], weights_high, values[0], values[1]);
          H::multiply(out[2 * n], weights_low, values[0], values[1]);
          H::multiply(out[2 * n + 1], weights_high, values[2], values[3]);
          H::multiply(out[2 * n + 1], weights_low, values[2], values[3]);
        }
      }
      sync_block();  // the next copy overwrites this stage
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      for (int mask = 1; mask <= 2; mask *= 2) sum[i] += shuffle_xor(sum[i], mask);
      const bool sees = first_seen[i] <= span_last && last_seen[i] >= span_begin;
      if (!sees) continue;
      if (c.cut.shared()) {
        if (!there[i]) continue;
        // The first span of the row is this one or an earlier one.
        const int row_span = (span_last - first_seen[i]) / kSpanKeys;
        float* state =
            c.states + ((token[i] * c.args.num_heads + head[i]) * c.cut.row_spans + row_span) *
                           (kStateHead + kDim);
        if (t == 0) {
          state[0] = maximum[i];
          state[1] = sum[i];
        }
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n) {
          state[kStateHead + n * 8 + t * 2] = out[n][2 * i];
          state[kStateHead + n * 8 + t * 2 + 1] = out[n][2 * i + 1];
        }
        continue;
      }
      // Merges the span by the rule of cpu/kernels.h.
      const bool begun = first_seen[i] < span_begin;
      const float top = merged_maximum[i] < maximum[i] ? maximum[i] : merged_maximum[i];
      const float old_factor = exponential(merged_maximum[i] - top);
      const float new_factor = exponential(maximum[i] - top);
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& kept = merged[(n * 4 + 2 * i + j) * 32];
          kept =
              begun ? fmaf(out[n][2 * i + j], new_factor, kept * old_factor) : out[n][2 * i + j];
        }
      }
      merged_sum[i] = begun ? fmaf(sum[i], new_factor, merged_sum[i] * old_factor) : sum[i];
      merged_maximum[i] = begun ? top : maximum[i];
    }
  }
  if (c.cut.shared()) return;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (!there[i]) continue;
    float* to = c.args.out + token[i] * c.out_stride + head[i] * head_dim;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int dim = n * 8 + t * 2 + j;
        if (dim < head_dim) to[dim] = merged[(n * 4 + 2 * i + j) * 32] / merged_sum[i];
      }
    }
  }
}

constexpr int kMergeThreads = 128;

template <int kDim>
__global__ void __launch_bounds__(kMergeThreads) merge_rows(Call c) {
  const int64_t row = blockIdx.x, head = blockIdx.y;
  const SliceEntry slice = c.step.slices[c.step.slice_of_row[row]];
  const int64_t position = slice.first_position + row - slice.first_row, window = c.cache.window;
  const int64_t first = window > 0 && window <= position ? position - window + 1 : 0;
  const int64_t spans = position / kSpanKeys - first / kSpanKeys + 1;
  const float* state =
      c.states + (row * c.args.num_heads + head) * c.cut.row_spans * (kStateHead + kDim);
  for (int dim = static_cast<int>(threadIdx.x); dim < c.cache.head_dim; dim += kMergeThreads) {
    float maximum = state[0], sum = state[1], out = state[kStateHead + dim];
    for (int64_t span = 1; span < spans; ++span) {
      const float* next = state + span * (kStateHead + kDim);
      const float top = maximum < next[0] ? next[0] : maximum;
      const float old_factor = exponential(maximum - top);
      const float new_factor = exponential(next[0] - top);
      out = fmaf(next[kStateHead + dim], new_factor, out * old_factor);
      sum = fmaf(next[1], new_factor, sum * old_factor);
      maximum = top;
    }
    c.args.out[row * c.out_stride + head * c.cache.head_dim + dim] = out / sum;
  }
}

constexpr int kPrefillWarps = 4;  // half of them if shared memory is too small

// With this number of blocks for each multiprocessor, rows are not split.
constexpr int64_t kEnoughBlocks = 4;

int64_t rows_of_slice(const AttendLayerArgs& args, const LayerCache& cache, const StepView& step) {
  return step.most_tokens * (args.num_heads / cache.num_kv_heads);
}

Cut cut_spans(const AttendLayerArgs& args, const LayerCache& cache, const StepView& step,
              int processors) {
  constexpr int64_t kMostRows = kPrefillWarps * kWarpRows;  // in a block
  const int64_t group = args.num_heads / cache.num_kv_heads, positions = step.most_positions;
  // The most tokens of a block: it may begin and end inside the heads of a token.
  const int64_t tokens = std::min<int64_t>(step.most_tokens, (kMostRows - 2) / group + 2);
  const auto seen_by = [&](int64_t neighbours) {
    return cache.window > 0 ? std::min(cache.window + neighbours - 1, positions) : positions;
  };
  const Cut cut = {most_spans(seen_by(1), positions), most_spans(seen_by(tokens), positions)};
  const int64_t tiles = (rows_of_slice(args, cache, step) + kMostRows - 1) / kMostRows;
  const int64_t blocks = step.num_slices * tiles * cache.num_kv_heads;
  return cut.block_spans == 1 || blocks >= kEnoughBlocks * processors ? Cut{} : cut;
}

int padded_dim(int head_dim) { return head_dim <= 64 ? 64 : kMostDim; }

template <int kDim, int kWarps, bool kBf16>
void run_rows(Stream& stream, Call call) {
  constexpr int64_t kRows = kWarps * kWarpRows;
  call.tiles_of_slice = (rows_of_slice(call.args, call.cache, call.step) + kRows - 1) / kRows;
  const Grid grid = {call.step.num_slices * call.tiles_of_slice, call.cache.num_kv_heads,
                     std::max<int64_t>(1, call.cut.block_spans), kWarps * 32,
                     Layout<kDim, kWarps>::kBytes};
  launch(stream, grid, attend_rows<kDim, kWarps, kBf16>, call);
}

template <int kDim, bool kBf16>
void run(Stream& stream, const Call& call) {
  constexpr int kFewWarps = kPrefillWarps / 2;
  static_assert(Layout<kDim, kFewWarps>::kBytes <= kLeastSharedBytes);
  if (rows_of_slice(call.args, call.cache, call.step) <= kWarpRows) {
    run_rows<kDim, 1, kBf16>(stream, call);
  } else if (Layout<kDim, kPrefillWarps>::kBytes <= stream.shared_bytes()) {
    run_rows<kDim, kPrefillWarps, kBf16>(stream, call);
  } else {
    run_rows<kDim, kFewWarps, kBf16>(stream, call);
  }
  if (!call.cut.shared()) return;
  launch(stream, {call.step.rows, call.args.num_heads, 1, kMergeThreads, 0}, merge_rows<kDim>,
         call);
}

template <bool kBf16>
void run(Stream& stream, const Call& call) {
  if (padded_dim(call.cache.head_dim) == 64) {
    run<64, kBf16>(stream, call);
  } else {
    run<kMostDim, kBf16>(stream, call);
  }
}

}  // namespace

bool attends_in_tiles(const LayerCache& cache) {
  return cache.dtype != DType::f32 && cache.head_dim % 16 == 0 && cache.head_dim <= kMostDim;
}

int64_t attend_tiles_scratch(const AttendLayerArgs& args, const LayerCache& cache,
                             const StepView& step, int processors) {
  return step.rows * args.num_heads * cut_spans(args, cache, step, processors).row_spans *
         (kStateHead + padded_dim(cache.head_dim)) * static_cast<int64_t>(sizeof(float));
}

void attend_tiles(Stream& stream, const AttendLayerArgs& args, const LayerCache& cache,
                  const StepView& step, void* scratch) {
  Call call = {args,
               cache,
               step,
               activation_stride(args.num_heads * cache.head_dim),
               1,
               cut_spans(args, cache, step, stream.processors()),
               static_cast<float*>(scratch)};
  if (cache.dtype == DType::bf16) {
    run<true>(stream, call);
  } else {
    run<false>(stream, call);
  }
}

}  // namespace onward::cuda
