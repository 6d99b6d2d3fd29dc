// Attention in the CPU's order of operations (cpu/kernels.h, AttendArgs), so the bits are equal: an
// online softmax over tiles of 64 keys in each span of 512 keys; states are merged in ascending
// order. It is for caches without codes or sinks (see attend_codes.cu), mainly float32. A block
// computes one head of one row. If there are few rows, it computes one span, and a second kernel
// merges.
#include "cuda/kernels/exact_softmax.h"
#include "cuda/kernels/verbs.h"

namespace onward::cuda {
namespace {

struct AttendCall {
  AttendLayerArgs args;
  LayerCache cache;
  StepView step;
  int64_t out_stride;
  int64_t spans;  // states of a row and head; 0: a block computes all spans of its row
  float* states;  // (rows, heads, spans, state)
};

// The keys that a row sees: [first, last].
struct Seen {
  int64_t first;
  int64_t last;
};

__device__ Seen keys_of(const AttendCall& c, int64_t row) {
  const SliceEntry slice = c.step.slices[c.step.slice_of_row[row]];
  const int64_t position = slice.first_position + row - slice.first_row;
  const int64_t window = c.cache.window;
  return {window > 0 && window <= position ? position - window + 1 : 0, position};
}

__device__ ExactKeys exact_keys(const AttendCall& c, int64_t row, int head) {
  const int64_t slice = c.step.slice_of_row[row];
  const int kv_head = head / (static_cast<int>(c.args.num_heads) / c.cache.num_kv_heads);
  return {c.step.tables[(slice * c.step.groups + c.cache.group) * 2],
          c.cache.keys_offset + kv_head * c.cache.head_bytes,
          c.cache.values_offset,
          c.cache.value_stride,
          c.cache.head_dim,
          c.cache.dtype};
}

// Compute capability 8 needs a register or two more than a seventh block leaves: with six blocks
// none is kept in memory.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define ONWARD_SPAN_BOUNDS __launch_bounds__(kSoftmaxThreads, 6)
#else
#define ONWARD_SPAN_BOUNDS __launch_bounds__(kSoftmaxThreads)
#endif

__global__ void ONWARD_SPAN_BOUNDS attend_spans(AttendCall c) {
  const int64_t row = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y);
  const Seen seen = keys_of(c, row);
  const int64_t first_span = seen.first / kSpanKeys, last_span = seen.last / kSpanKeys;
  const ExactKeys keys = exact_keys(c, row, head);
  const float* q = c.args.q + row * c.args.q_stride + static_cast<int64_t>(head) * keys.head_dim;
  SoftmaxShared& shared = *reinterpret_cast<SoftmaxShared*>(shared_memory());
  if (c.spans > 0) {
    const int64_t span = first_span + blockIdx.z;
    if (span > last_span) return;
    attend_span(keys, q, c.args.scale, seen.first, seen.last, span, shared, shared.merged);
    const int64_t place = (row * c.args.num_heads + head) * c.spans + blockIdx.z;
    copy_state(shared.merged, c.states + place * state_floats(keys.head_dim), keys.head_dim);
    return;
  }
  for (int64_t span = first_span; span <= last_span; ++span) {
    float* state = span == first_span ? shared.merged : shared.next;
    attend_span(keys, q, c.args.scale, seen.first, seen.last, span, shared, state);
    if (span > first_span) merge_states(shared.merged, shared.next, keys.head_dim);
  }
  write_row(shared.merged, keys.head_dim,
            c.args.out + row * c.out_stride + static_cast<int64_t>(head) * keys.head_dim);
}

__global__ void __launch_bounds__(kSoftmaxThreads) merge_spans(AttendCall c) {
  const int64_t row = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y), size = c.cache.head_dim;
  const Seen seen = keys_of(c, row);
  const int64_t spans = seen.last / kSpanKeys - seen.first / kSpanKeys + 1;
  const float* states = c.states + (row * c.args.num_heads + head) * c.spans * state_floats(size);
  SoftmaxShared& shared = *reinterpret_cast<SoftmaxShared*>(shared_memory());
  copy_state(states, shared.merged, size);
  for (int64_t span = 1; span < spans; ++span) {
    merge_states(shared.merged, states + span * state_floats(size), size);
  }
  write_row(shared.merged, size,
            c.args.out + row * c.out_stride + static_cast<int64_t>(head) * size);
}

// With this number of blocks for each multiprocessor, rows are not split.
constexpr int64_t kEnoughBlocks = 8;

int64_t cut_spans(const AttendLayerArgs& args, const LayerCache& cache, const StepView& step,
                  int processors) {
  const int64_t keys =
      cache.window > 0 ? std::min(cache.window, step.most_positions) : step.most_positions;
  const int64_t spans = most_spans(keys, step.most_positions);
  const bool enough = step.rows * args.num_heads >= kEnoughBlocks * processors;
  return spans == 1 || enough ? 0 : spans;
}

}  // namespace

int64_t attend_exact_scratch(const AttendLayerArgs& args, const LayerCache& cache,
                             const StepView& step, int processors) {
  return step.rows * args.num_heads * cut_spans(args, cache, step, processors) *
         state_floats(cache.head_dim) * static_cast<int64_t>(sizeof(float));
}

void attend_exact(Stream& stream, const AttendLayerArgs& args, const LayerCache& cache,
                  const StepView& step, void* scratch) {
  const int64_t spans = cut_spans(args, cache, step, stream.processors());
  const AttendCall call = {args,  cache,
                           step,  activation_stride(args.num_heads * cache.head_dim),
                           spans, static_cast<float*>(scratch)};
  Grid grid = {step.rows, args.num_heads, std::max<int64_t>(1, spans), kSoftmaxThreads,
               sizeof(SoftmaxShared)};
  launch(stream, grid, attend_spans, call);
  if (spans == 0) return;
  grid.z = 1;
  launch(stream, grid, merge_spans, call);
}

}  // namespace onward::cuda
