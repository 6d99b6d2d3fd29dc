#include "cpu/tasks/attend.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "cpu/tasks/encode.h"

namespace onward::cpu {
namespace {

// Tokens of one task in prefill.
constexpr int64_t kTileTokens = 16;

// The cost of beginning and merging a piece, as a part of the cost of one span of the same tokens.
// Measured for one token.
constexpr double kPieceCost = 0.12;

constexpr int64_t kMostHeadDim = 512;

// With this many tasks for each thread, no tile is split.
constexpr int64_t kEnoughTasks = 4;

// The most memory for the states of split tiles. Tiles beyond it stay whole.
constexpr int64_t kMostStateBytes = int64_t{64} << 20;

// The number of pieces of a tile. Let W be the whole work, in spans of one token. With pieces of g
// spans there are W / (g tokens) beginnings, and at the end all threads may wait for a piece that
// has just begun:
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

// The keys that the tokens [first_token, first_token + tokens) of a slice see. In a coded cache the
// tokens lie in one block, so that they see the same blocks as codes.
AttendTasks::Tile AttendTasks::tile_of(const SequenceSlice& slice, int64_t first_token,
                                       int64_t tokens) const {
  constexpr int64_t kTokens = CacheLayout::kBlockTokens;
  const int64_t first = slice.first_position + first_token, last = first + tokens - 1;
  const int64_t sinks = seen_->window > 0 ? seen_->sink_tokens : 0;
  Tile tile = {};
  tile.slice = &slice;
  tile.first_token = first_token;
  tile.tokens = tokens;
  // The first token sees the earliest key. With sinks, it sees all keys until there is a gap.
  const bool gap = sinks == 0 || first >= seen_->window + sinks;
  const int64_t first_key = gap ? seen_->first_key(first) : 0;
  tile.all = sinks > 0 && last < seen_->window + sinks;
  tile.coded_end = layout_->coded_end(first / kTokens);
  const int64_t coded_begin = layout_->coded_begin();
  const bool any_coded = coded_begin < tile.coded_end;
  tile.mixed = any_coded || (sinks > 0 && !tile.all);
  int64_t first_exact = first_key;
  if (any_coded) {
    const int64_t coded_key = std::max(first_key, coded_begin * kTokens);
    const int64_t coded_keys_end = tile.coded_end * kTokens;
    if (coded_key < coded_keys_end) {
      tile.first_coded_span = coded_key / kSpanKeys;
      tile.end_coded_span = (coded_keys_end - 1) / kSpanKeys + 1;
    }
    first_exact = std::max(first_exact, coded_keys_end);
  }
  tile.first_span = first_exact / kSpanKeys;
  tile.end_span = last / kSpanKeys + 1;
  return tile;
}

// The spans, and for mixed tiles the sinks and block 0.
int64_t AttendTasks::units_of(const Tile& tile) const {
  return tile.end_coded_span - tile.first_coded_span + (tile.mixed ? 2 : 0) + tile.end_span -
         tile.first_span;
}

int64_t AttendTasks::state_width(const Tile& tile) const {
  const int64_t stride = layout_->value_stride(*seen_);
  return tile.mixed ? std::max(stride, layout_->coded_dim(*seen_)) : stride;
}

int64_t AttendTasks::unit_floats(const Tile& tile) const {
  return tile.tokens * group_ * (kStateHead + state_width(tile));
}

void AttendTasks::plan(const Kernels& kernels, const AttendLayerArgs& args,
                       const CacheLayout& layout, const std::vector<SequenceSlice>& slices,
                       int threads) {
  kernels_ = &kernels;
  args_ = &args;
  layout_ = &layout;
  layer_group_ = layout.group_of[static_cast<size_t>(args.layer)];
  seen_ = &layout.group(args.layer);
  group_ = args.num_heads / seen_->num_kv_heads;
  tiles_.clear();
  pieces_.clear();
  int64_t all_work = 0;
  const bool aligned = layout.coded() || seen_->sink_tokens > 0;
  // Late tiles see the most keys and go first; short tiles fill the gaps at the end.
  for (auto slice = slices.rbegin(); slice != slices.rend(); ++slice) {
    const int64_t offset = aligned ? slice->first_position % kTileTokens : 0;
    for (int64_t end = slice->tokens; end > 0;) {
      const int64_t begin =
          std::max<int64_t>(0, (offset + end - 1) / kTileTokens * kTileTokens - offset);
      const Tile tile = tile_of(*slice, begin, end - begin);
      all_work += units_of(tile) * tile.tokens * seen_->num_kv_heads;
      tiles_.push_back(tile);
      end = begin;
    }
  }
  int64_t floats = 0, counters = 0;
  const int64_t tasks = static_cast<int64_t>(tiles_.size()) * seen_->num_kv_heads;
  const bool split = tasks < kEnoughTasks * threads;
  for (Tile& tile : tiles_) {
    const int64_t units = units_of(tile);
    const int64_t tile_floats = units * unit_floats(tile) * seen_->num_kv_heads;
    const bool fits = (floats + tile_floats) * 4 <= kMostStateBytes;
    tile.pieces = split && fits ? pieces_of(units, tile.tokens, all_work, threads) : 1;
    for (int64_t piece = 0; piece < tile.pieces; ++piece) {
      pieces_.push_back(
          {&tile - tiles_.data(), piece * units / tile.pieces, (piece + 1) * units / tile.pieces});
    }
    if (tile.pieces == 1) continue;
    tile.states = floats;
    tile.unfinished = counters;
    floats += tile_floats;
    counters += seen_->num_kv_heads;
    unfinished_.resize(static_cast<size_t>(counters));
    std::fill(unfinished_.begin() + tile.unfinished, unfinished_.end(),
              static_cast<int32_t>(tile.pieces));
  }
  // Contexts grow token by token: a buffer of twice the size lasts for long.
  const int64_t bytes = floats * 4;
  if (bytes > static_cast<int64_t>(states_.bytes())) {
    states_ = AlignedBuffer(static_cast<size_t>(std::min(2 * bytes, kMostStateBytes)));
  }
}

AttendArgs AttendTasks::exact_args(const Tile& tile, int64_t kv_head) const {
  const int64_t row = tile.slice->first_row + tile.first_token;
  const int64_t head = kv_head * group_;  // the first one that shares the kv head
  const auto own = [&](const Vector& by_head) {
    return by_head.empty() ? nullptr : by_head.data + head;
  };
  AttendArgs attend;
  attend.q = args_->q + row * args_->q_stride + head * seen_->head_dim;
  attend.q_stride = args_->q_stride;
  attend.out_stride = activation_stride(args_->num_heads * seen_->value_dim);
  attend.out = args_->out + row * attend.out_stride + head * seen_->value_dim;
  attend.blocks = tile.slice->blocks[layer_group_].exact;
  attend.k_offset = layout_->keys_offset(args_->layer, kv_head);
  attend.v_offset = layout_->values_offset(args_->layer, kv_head);
  attend.v_stride = layout_->value_stride(*seen_);
  attend.state_width = state_width(tile);
  attend.head_dim = seen_->head_dim;
  attend.value_dim = seen_->value_dim;
  attend.group = group_;
  attend.tokens = tile.tokens;
  attend.first_position = tile.slice->first_position + tile.first_token;
  attend.window = tile.all ? 0 : seen_->window;
  attend.chunk = seen_->chunk_tokens;
  attend.scale = args_->scale;
  attend.softcap = args_->softcap;
  attend.sink_logits = own(args_->sink_logits);
  attend.alibi_slopes = own(args_->alibi_slopes);
  return attend;
}

CodedAttendArgs AttendTasks::coded_args(const Tile& tile, int64_t kv_head) const {
  const int64_t row = tile.slice->first_row + tile.first_token;
  CodedAttendArgs coded;
  coded.exact = exact_args(tile, kv_head);
  coded.coded = tile.slice->blocks[layer_group_].coded;
  coded.key_codec = layout_->key_codec;
  coded.value_codec = layout_->value_codec;
  coded.coded_begin = layout_->coded_begin();
  coded.coded_end = tile.coded_end;
  coded.key_codes_offset = layout_->key_codes_offset(args_->layer, kv_head);
  coded.value_codes_offset = layout_->value_codes_offset(args_->layer, kv_head);
  coded.key_scales_offset = layout_->key_scales_offset(args_->layer, kv_head);
  coded.value_scales_offset = layout_->value_scales_offset(args_->layer, kv_head);
  coded.next_codes = layout_->key_codes_offset(args_->layer, kv_head + 1) - coded.key_codes_offset;
  coded.next_scales =
      layout_->key_scales_offset(args_->layer, kv_head + 1) - coded.key_scales_offset;
  coded.coded_dim = layout_->coded_dim(*seen_);
  coded.sink_tokens = seen_->sink_tokens;
  const int64_t sink_offset = row * (seen_->head_dim / 2);
  coded.sink_cosines = seen_->sink_tokens > 0 ? args_->sink_cosines + sink_offset : nullptr;
  coded.sink_sines = seen_->sink_tokens > 0 ? args_->sink_sines + sink_offset : nullptr;
  coded.first_coded_span = tile.first_coded_span;
  coded.end_coded_span = tile.end_coded_span;
  coded.first_tail_span = tile.first_span;
  coded.end_tail_span = tile.end_span;
  return coded;
}

void AttendTasks::run(int64_t task) {
  const Piece& piece = pieces_[static_cast<size_t>(task / seen_->num_kv_heads)];
  const Tile& tile = tiles_[static_cast<size_t>(piece.tile)];
  const int64_t kv_head = task % seen_->num_kv_heads;
  const bool f16 = layout_->dtype == DType::f16, bf16 = layout_->dtype == DType::bf16;
  const int64_t floats = unit_floats(tile);
  float* const states =
      tile.pieces == 1 ? nullptr
                       : states_.data<float>() + tile.states + kv_head * units_of(tile) * floats;
  // The thread that ends the last piece sees the writes of all other threads.
  const auto is_last = [&] {
    if (tile.pieces == 1) return false;
    std::atomic_ref<int32_t> left(unfinished_[static_cast<size_t>(tile.unfinished + kv_head)]);
    return left.fetch_sub(1, std::memory_order_acq_rel) == 1;
  };
  if (tile.mixed) {
    CodedAttendArgs attend = coded_args(tile, kv_head);
    alignas(64) float centre[kMostHeadDim] = {};
    attend.centre = nullptr;
    if (layout_->exact_first && is_rotated(layout_->key_codec) &&
        tile.first_coded_span < tile.end_coded_span) {
      key_centre(*kernels_, *layout_, args_->layer,
                 static_cast<const char*>(attend.exact.blocks[0]) + attend.exact.k_offset, centre);
      attend.centre = centre;
    }
    attend.first_unit = piece.first_unit;
    attend.end_unit = piece.end_unit;
    if (states != nullptr) attend.states = states + piece.first_unit * floats;
    (bf16  ? kernels_->attend_coded_bf16
     : f16 ? kernels_->attend_coded_f16
           : kernels_->attend_coded_f32)(attend);
    if (!is_last()) return;
    attend.first_unit = 0;
    attend.end_unit = units_of(tile);
    attend.states = states;
    return kernels_->merge_units(attend);
  }
  AttendArgs attend = exact_args(tile, kv_head);
  if (states != nullptr) {
    attend.first_span = tile.first_span + piece.first_unit;
    attend.end_span = tile.first_span + piece.end_unit;
    attend.states = states + piece.first_unit * floats;
  }
  (bf16 ? kernels_->attend_bf16 : f16 ? kernels_->attend_f16 : kernels_->attend_f32)(attend);
  if (!is_last()) return;
  attend.first_span = tile.first_span;
  attend.end_span = tile.end_span;
  attend.states = states;
  kernels_->merge_spans(attend);
}

}  // namespace onward::cpu
