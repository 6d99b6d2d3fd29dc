#include "cpu/attend.h"

#include <algorithm>
#include <atomic>
#include <cmath>

namespace onward::cpu {
namespace {

// Tokens of one task in prefill.
constexpr int64_t kTileTokens = 16;

// What beginning and merging a piece costs, in spans of as many tokens: measured for one token.
constexpr double kPieceCost = 0.12;

// With so many tasks for each thread none of them is split.
constexpr int64_t kEnoughTasks = 4;

// What the states of split tiles may take together; beyond it tiles stay whole.
constexpr int64_t kMostStateBytes = int64_t{64} << 20;

// How many pieces. All work together is W spans of a token. In pieces of g spans, W / (g tokens) of
// them cost the threads their beginnings, and at the end all may wait for one that has just begun:
//   time = (W + W / g * cost) / threads + (1 - 1 / threads) * g * tokens,
// which is least at g = sqrt(W * cost / (tokens * (threads - 1))).
int64_t pieces_of(int64_t spans, int64_t tokens, int64_t all_work, int threads) {
  if (threads == 1) return 1;
  const double each = std::sqrt(kPieceCost * static_cast<double>(all_work) /
                                static_cast<double>(tokens * (threads - 1)));
  return std::max<int64_t>(1,
                           static_cast<int64_t>(static_cast<double>(spans) / std::max(1.0, each)));
}

}  // namespace

int64_t AttendTasks::states_floats(const Tile& tile) const {
  return (tile.end_span - tile.first_span) * tile.tokens * group_ *
         (kStateHead + layout_->value_stride());
}

void AttendTasks::plan(const Kernels& kernels, const AttendLayerArgs& args,
                       const CacheLayout& layout, const std::vector<SequenceSlice>& slices,
                       int threads) {
  attend_ = layout.dtype == DType::bf16  ? kernels.attend_bf16
            : layout.dtype == DType::f16 ? kernels.attend_f16
                                         : kernels.attend_f32;
  merge_spans_ = kernels.merge_spans;
  args_ = &args;
  layout_ = &layout;
  group_ = args.num_heads / layout.num_kv_heads;
  const CacheLayout::Group& seen =
      layout.groups[static_cast<size_t>(layout.group_of[static_cast<size_t>(args.layer)])];
  tiles_.clear();
  pieces_.clear();
  int64_t all_work = 0;
  // Late tiles see the most keys: they go first, the short ones fill the gaps at the end.
  for (auto slice = slices.rbegin(); slice != slices.rend(); ++slice) {
    for (int64_t end = slice->tokens; end > 0;) {
      Tile tile = {};
      tile.slice = &*slice;
      tile.first_token = (end - 1) / kTileTokens * kTileTokens;
      tile.tokens = end - tile.first_token;
      const int64_t first = slice->first_position + tile.first_token;
      const bool windowed = seen.window > 0 && seen.window <= first;
      tile.first_span = windowed ? (first - seen.window + 1) / kSpanKeys : 0;
      tile.end_span = (first + tile.tokens - 1) / kSpanKeys + 1;
      all_work += (tile.end_span - tile.first_span) * tile.tokens * layout.num_kv_heads;
      tiles_.push_back(tile);
      end = tile.first_token;
    }
  }
  int64_t floats = 0, counters = 0;
  const int64_t tasks = static_cast<int64_t>(tiles_.size()) * layout.num_kv_heads;
  const bool split = tasks < kEnoughTasks * threads;
  for (Tile& tile : tiles_) {
    const int64_t spans = tile.end_span - tile.first_span;
    const int64_t tile_floats = states_floats(tile) * layout.num_kv_heads;
    const bool fits = (floats + tile_floats) * 4 <= kMostStateBytes;
    tile.pieces = split && fits ? pieces_of(spans, tile.tokens, all_work, threads) : 1;
    for (int64_t piece = 0; piece < tile.pieces; ++piece) {
      pieces_.push_back({&tile - tiles_.data(), tile.first_span + piece * spans / tile.pieces,
                         tile.first_span + (piece + 1) * spans / tile.pieces});
    }
    if (tile.pieces == 1) continue;
    tile.states = floats;
    tile.unfinished = counters;
    floats += tile_floats;
    counters += layout.num_kv_heads;
    unfinished_.resize(static_cast<size_t>(counters));
    std::fill(unfinished_.begin() + tile.unfinished, unfinished_.end(),
              static_cast<int32_t>(tile.pieces));
  }
  // Contexts grow token by token: twice as much lasts.
  const int64_t bytes = floats * 4;
  if (bytes > static_cast<int64_t>(states_.bytes())) {
    states_ = AlignedBuffer(static_cast<size_t>(std::min(2 * bytes, kMostStateBytes)));
  }
}

void AttendTasks::run(int64_t task) {
  const Piece& piece = pieces_[static_cast<size_t>(task / layout_->num_kv_heads)];
  const Tile& tile = tiles_[static_cast<size_t>(piece.tile)];
  const int64_t kv_head = task % layout_->num_kv_heads;
  const int64_t row = tile.slice->first_row + tile.first_token;
  const int64_t head_offset = kv_head * group_ * layout_->head_dim;
  AttendArgs attend;
  attend.q = args_->qkv + row * args_->qkv_stride + head_offset;
  attend.q_stride = args_->qkv_stride;
  attend.out_stride = activation_stride(args_->num_heads * layout_->head_dim);
  attend.out = args_->out + row * attend.out_stride + head_offset;
  attend.blocks = tile.slice->blocks[layout_->group_of[static_cast<size_t>(args_->layer)]].exact;
  attend.k_offset = layout_->keys_offset(args_->layer, kv_head);
  attend.v_offset = layout_->values_offset(args_->layer, kv_head);
  attend.v_stride = layout_->value_stride();
  attend.head_dim = layout_->head_dim;
  attend.group = group_;
  attend.tokens = tile.tokens;
  attend.first_position = tile.slice->first_position + tile.first_token;
  attend.window =
      layout_->groups[static_cast<size_t>(layout_->group_of[static_cast<size_t>(args_->layer)])].window;
  attend.scale = args_->scale;
  if (tile.pieces == 1) return attend_(attend);

  const int64_t floats = states_floats(tile);
  float* states = states_.data<float>() + tile.states + kv_head * floats;
  const int64_t span_floats = floats / (tile.end_span - tile.first_span);
  attend.first_span = piece.first_span;
  attend.end_span = piece.end_span;
  attend.states = states + (piece.first_span - tile.first_span) * span_floats;
  attend_(attend);
  // Whoever sees the last piece end sees what all the others have written.
  std::atomic_ref<int32_t> left(unfinished_[static_cast<size_t>(tile.unfinished + kv_head)]);
  if (left.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  attend.first_span = tile.first_span;
  attend.end_span = tile.end_span;
  attend.states = states;
  merge_spans_(attend);
}

}  // namespace onward::cpu
