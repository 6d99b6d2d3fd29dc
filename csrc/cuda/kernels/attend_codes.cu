// Attention for rows that see codes or sinks, with the same bits as on the CPU (cpu/kernels.h,
// CodedAttendArgs). The keys of a row are split into units; each has its own softmax, and units are
// merged in order. A block computes some heads of one row. If there are few rows, it computes one
// unit of them, and a second kernel merges. A row without codes and sinks has the units of a plain
// cache.
#include "cuda/kernels/coded_softmax.h"
#include "cuda/kernels/verbs.h"

namespace onward::cuda {
namespace {

// The two states of a head.
constexpr int kMerged = 0, kNext = 1;

struct CodedCall {
  AttendLayerArgs args;
  LayerCache cache;
  StepView step;
  CodedRoom room;
  RotationSigns signs;
  int64_t out_stride;
  int64_t runs;   // of heads of one kv head; a block computes one run
  int64_t units;  // states of a row and head; 0: a block computes all units of its row
  float* states;  // (rows, heads, units, state)
};

struct KeyRun {
  int64_t first;
  int64_t last;
  __device__ bool empty() const { return first > last; }
};

// The keys that a row sees. Order of the units: coded spans, sinks, block 0, spans of the tail.
struct RowView {
  int64_t position;
  int64_t slice;
  int64_t first_key;
  int64_t sinks;        // keys [0, sinks), before the window
  int64_t coded_begin;  // keys
  int64_t coded_end;    // equal to coded_begin: nothing is coded
  int64_t first_coded_span;
  int64_t coded_spans;
  int64_t first_tail_span;
  int64_t units;

  __device__ KeyRun keys_of(int64_t unit) const {
    const auto later = [](int64_t a, int64_t b) { return a < b ? b : a; };
    const auto earlier = [](int64_t a, int64_t b) { return a < b ? a : b; };
    const bool any_coded = coded_begin < coded_end;
    if (unit < coded_spans) {
      const int64_t span = (first_coded_span + unit) * kSpanKeys;
      return {later(later(first_key, span), coded_begin), earlier(span + kSpanKeys, coded_end) - 1};
    }
    if (unit == coded_spans) return {0, sinks - 1};
    if (unit == coded_spans + 1) {
      return {first_key, any_coded && coded_begin > 0 ? kBlockKeys - 1 : -1};
    }
    const int64_t span = (first_tail_span + unit - coded_spans - 2) * kSpanKeys;
    return {later(later(first_key, span), any_coded ? coded_end : 0),
            earlier(span + kSpanKeys - 1, position)};
  }
};

__device__ RowView view_of(const CodedCall& c, int64_t row) {
  const LayerCache& cache = c.cache;
  RowView view;
  view.slice = c.step.slice_of_row[row];
  const SliceEntry slice = c.step.slices[view.slice];
  view.position = slice.first_position + row - slice.first_row;
  // While there is no gap between sinks and window, a row sees all keys.
  const int64_t sinks = cache.window > 0 ? cache.sink_tokens : 0;
  const bool windowed = cache.window > 0 && view.position >= cache.window + sinks;
  view.first_key = windowed ? view.position - cache.window + 1 : 0;
  view.sinks = windowed ? sinks : 0;
  const int64_t begin = cache.coded_begin;
  int64_t end = cache.coded ? view.position / kBlockKeys - cache.window_blocks : begin;
  if (end < begin) end = begin;
  view.coded_begin = begin * kBlockKeys;
  view.coded_end = end * kBlockKeys;
  view.first_coded_span = view.coded_spans = 0;
  int64_t first_exact = view.first_key;
  if (begin < end) {
    const int64_t first = view.first_key > view.coded_begin ? view.first_key : view.coded_begin;
    if (first < view.coded_end) {
      view.first_coded_span = first / kSpanKeys;
      view.coded_spans = (view.coded_end - 1) / kSpanKeys + 1 - view.first_coded_span;
    }
    if (first_exact < view.coded_end) first_exact = view.coded_end;
  }
  view.first_tail_span = first_exact / kSpanKeys;
  view.units = view.coded_spans + 2 + view.position / kSpanKeys + 1 - view.first_tail_span;
  return view;
}

__device__ int64_t head_offset(const CodedCall& c, int64_t head) { return head * c.cache.head_dim; }

// The number of outputs in the state of a unit; later ones are not read.
__device__ int width_of(const CodedCall& c, const RowView& view, int64_t unit) {
  const bool coded = unit < view.coded_spans && c.cache.value_codec != KvCodec::exact;
  return coded ? c.cache.coded_dim : c.cache.head_dim;
}

__device__ float* states_of(const CodedCall& c, int64_t row, int64_t head) {
  return c.states + (row * c.args.num_heads + head) * c.units * state_floats(c.cache.coded_dim);
}

// The heads of a block: `count` heads from `first`, of one kv head.
struct BlockHeads {
  int64_t row;
  int64_t kv_head;
  int64_t first;
  int count;
};

__device__ BlockHeads heads_of_run(const CodedCall& c, int64_t run) {
  const int64_t group = c.args.num_heads / c.cache.num_kv_heads;
  const int64_t begin = run % c.runs * c.room.heads, left = group - begin;
  BlockHeads heads;
  heads.row = blockIdx.x;
  heads.kv_head = run / c.runs;
  heads.first = heads.kv_head * group + begin;
  heads.count = static_cast<int>(left < c.room.heads ? left : c.room.heads);
  return heads;
}

// Rotates the query of a head back to the last position that sees the sinks without a gap.
__device__ const float* turned_query(const CodedCall& c, int64_t row, const float* q,
                                     float* turned) {
  const int half = c.cache.head_dim / 2;
  const float* cosines = c.args.sink_cosines + row * half;
  const float* sines = c.args.sink_sines + row * half;
  for (int i = static_cast<int>(threadIdx.x); i < half; i += kSoftmaxThreads) {
    const float a = q[i], b = q[half + i];
    turned[i] = a * cosines[i] - b * sines[i];
    turned[half + i] = b * cosines[i] + a * sines[i];
  }
  return turned;
}

__device__ void attend_unit(const CodedCall& c, const CodedHeads& coded, const BlockHeads& heads,
                            const RowView& view, int64_t unit, const KeyRun& run, int which,
                            SoftmaxShared& shared) {
  if (unit < view.coded_spans) return attend_coded_span(coded, run.first, run.last, which);
  const ExactKeys keys = {c.step.tables[(view.slice * c.step.groups + c.cache.group) * 2],
                          c.cache.keys_offset + heads.kv_head * c.cache.head_bytes,
                          c.cache.values_offset,
                          c.cache.value_stride,
                          c.cache.head_dim,
                          c.cache.dtype};
  for (int h = 0; h < heads.count; ++h) {
    const float* q = c.args.q + heads.row * c.args.q_stride + head_offset(c, heads.first + h);
    if (unit == view.coded_spans) q = turned_query(c, heads.row, q, coded.query(h));
    attend_span(keys, q, c.args.scale, run.first, run.last, run.first / kSpanKeys, shared,
                coded.state(which, h));
  }
}

__device__ void rotate_back(const RotationSigns& signs, float* out, int n, int count, int stride) {
  butterflies<kSoftmaxThreads>(out, n, 1, count, stride);
  for (int at = static_cast<int>(threadIdx.x); at < n * count; at += kSoftmaxThreads) {
    float& x = out[at / n * stride + at % n];
    x = signs.turned(at % n, x);
  }
  sync_block();
}

// Merges the units of a row in order and writes the row. next(unit, h) returns the state of head h
// in a unit that the row sees. merged: (count, state), in shared memory.
template <class Next>
__device__ void fold_units(const CodedCall& c, const RowView& view, int64_t row, int64_t first_head,
                           int count, float* merged, const Next& next) {
  const int n = c.cache.coded_dim, floats = static_cast<int>(state_floats(n));
  bool begun = false;
  for (int64_t unit = 0; unit < view.units; ++unit) {
    if (unit == view.coded_spans && begun && is_rotated(c.cache.value_codec)) {
      rotate_back(c.signs, merged + kStateHead, n, count, floats);
    }
    const KeyRun run = view.keys_of(unit);
    if (run.empty()) continue;
    const float* states = next(unit, run);
    const int width = width_of(c, view, unit);
    for (int h = 0; h < count; ++h) {
      if (begun) {
        merge_states(merged + h * floats, states + h * floats, width);
      } else {
        copy_state(states + h * floats, merged + h * floats, width);
      }
    }
    begun = true;
  }
  for (int h = 0; h < count; ++h) {
    write_row(merged + h * floats, c.cache.head_dim,
              c.args.out + row * c.out_stride + head_offset(c, first_head + h));
  }
}

// Grid: (rows, runs of heads); with kCut (rows, heads, units). With kCut a block writes the states
// of its unit; in coded units it computes a whole run of heads, which share the codes. Four blocks
// on a multiprocessor, because ptxas would spill with more.
template <bool kCut>
__global__ void __launch_bounds__(kSoftmaxThreads, 4) attend_units(CodedCall c) {
  const int64_t own = blockIdx.z;
  BlockHeads heads = heads_of_run(c, kCut ? blockIdx.y / c.room.heads : blockIdx.y);
  const RowView view = view_of(c, heads.row);
  if constexpr (kCut) {
    const int64_t place = blockIdx.y % c.room.heads;
    if (own >= view.units || view.keys_of(own).empty() || place >= heads.count) return;
    if (own < view.coded_spans) {
      if (place > 0) return;
    } else {
      heads.first += place;
      heads.count = 1;
    }
  }
  SoftmaxShared& shared = *reinterpret_cast<SoftmaxShared*>(shared_memory());
  void* const* const* tables = c.step.tables + (view.slice * c.step.groups + c.cache.group) * 2;
  const CodedHeads coded = {c.cache,
                            c.room,
                            tables[1],
                            c.cache.codes_offset + heads.kv_head * c.cache.head_codes_bytes,
                            c.cache.scales_offset + heads.kv_head * c.cache.head_scales_bytes,
                            c.args.scale,
                            heads.count,
                            reinterpret_cast<float*>(shared_memory() + sizeof(SoftmaxShared))};
  if (kCut ? own < view.coded_spans : view.coded_spans > 0) {
    const bool centred = c.cache.exact_first && is_rotated(c.cache.key_codec);
    const char* first_keys = nullptr;
    if (centred) {
      first_keys = static_cast<const char*>(tables[0][0]) + c.cache.keys_offset +
                   heads.kv_head * c.cache.head_bytes;
    }
    prepare_queries(coded, c.signs,
                    c.args.q + heads.row * c.args.q_stride + head_offset(c, heads.first),
                    first_keys);
  }
  if constexpr (kCut) {
    attend_unit(c, coded, heads, view, own, view.keys_of(own), kNext, shared);
    const int64_t floats = state_floats(c.cache.coded_dim);
    for (int h = 0; h < heads.count; ++h) {
      copy_state(coded.state(kNext, h), states_of(c, heads.row, heads.first + h) + own * floats,
                 width_of(c, view, own));
    }
  } else {
    fold_units(c, view, heads.row, heads.first, heads.count, coded.state(kMerged, 0),
               [&](int64_t unit, const KeyRun& run) -> const float* {
                 attend_unit(c, coded, heads, view, unit, run, kNext, shared);
                 return coded.state(kNext, 0);
               });
  }
}

// Grid: (rows, heads).
__global__ void __launch_bounds__(kSoftmaxThreads) merge_units(CodedCall c) {
  const int64_t row = blockIdx.x, head = blockIdx.y;
  const float* states = states_of(c, row, head);
  const int64_t floats = state_floats(c.cache.coded_dim);
  fold_units(c, view_of(c, row), row, head, 1, reinterpret_cast<float*>(shared_memory()),
             [&](int64_t unit, const KeyRun&) { return states + unit * floats; });
}

// The grid of a launch.
struct Cut {
  int64_t heads;  // in a block, of one kv head
  int64_t runs;   // of heads
  int64_t units;
};

// With this number of blocks for each multiprocessor, rows are not split.
constexpr int64_t kEnoughBlocks = 8;

Cut cut_of(const AttendLayerArgs& args, const LayerCache& cache, const StepView& step,
           int processors) {
  const int64_t group = args.num_heads / cache.num_kv_heads;
  Cut cut;
  // Without codes, heads share nothing.
  cut.heads = cache.coded ? std::min<int64_t>(group, kMostHeads) : 1;
  cut.runs = (group + cut.heads - 1) / cut.heads;
  const int64_t keys = cache.window > 0
                           ? std::min(cache.window + cache.sink_tokens, step.most_positions)
                           : step.most_positions;
  const int64_t spans = most_spans(keys, step.most_positions);
  const bool enough =
      step.rows * cache.num_kv_heads * cut.runs >= kEnoughBlocks * processors || spans == 1;
  // One more for a span that is partly coded, one for sinks and one for block 0.
  cut.units = enough ? 0 : spans + 3;
  return cut;
}

}  // namespace

bool sees_units(const LayerCache& cache) {
  return cache.coded || (cache.sink_tokens > 0 && cache.window > 0);
}

int64_t attend_codes_scratch(const AttendLayerArgs& args, const LayerCache& cache,
                             const StepView& step, int processors) {
  return step.rows * args.num_heads * cut_of(args, cache, step, processors).units *
         state_floats(cache.coded_dim) * static_cast<int64_t>(sizeof(float));
}

void attend_codes(Stream& stream, const AttendLayerArgs& args, const LayerCache& cache,
                  const StepView& step, void* scratch) {
  const Cut cut = cut_of(args, cache, step, stream.processors());
  const CodedCall call = {args,
                          cache,
                          step,
                          coded_room(cache, static_cast<int>(cut.heads)),
                          rotation_signs(),
                          activation_stride(args.num_heads * cache.head_dim),
                          cut.runs,
                          cut.units,
                          static_cast<float*>(scratch)};
  Grid grid = {step.rows, cache.num_kv_heads * cut.runs, std::max<int64_t>(1, cut.units),
               kSoftmaxThreads,
               sizeof(SoftmaxShared) + static_cast<size_t>(call.room.floats) * sizeof(float)};
  if (cut.units == 0) return launch(stream, grid, attend_units<false>, call);
  grid.y *= cut.heads;
  launch(stream, grid, attend_units<true>, call);
  grid.y = args.num_heads;
  grid.z = 1;
  grid.shared_bytes = static_cast<size_t>(state_floats(cache.coded_dim)) * sizeof(float);
  launch(stream, grid, merge_units, call);
}

}  // namespace onward::cuda
