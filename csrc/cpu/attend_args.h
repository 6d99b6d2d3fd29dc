// The arguments of the attention kernels and the order of the arithmetic. Plain types only (see
// kernels.h).
#pragma once

#include <cstdint>

namespace onward::cpu {

constexpr int64_t kBlockTokens = 16;  // tokens of a cache block: keys are lanes
constexpr int64_t kSpanKeys = 512;    // keys of one softmax of attention
constexpr int64_t kStateHead = 32;    // floats of a softmax's state before its output

// Causal attention of a run of consecutive tokens of ONE sequence over ONE key-value head.
//   q:   row of token t, head h (of the `group` heads that share the kv head) at
//        q + t * q_stride + h * head_dim; already rotated.
//   out: row of token t, head h at out + t * out_stride + h * value_dim; written, not added to.
//   blocks[b]: start of the cache block of positions [16 b, 16 b + 16). The pointer may be null
//        for blocks that no row sees. Inside the block, for this layer and kv head:
//        keys   at byte k_offset: [head_dim][16]    (lanes are tokens)
//        values at byte v_offset: [16][v_stride]    (v_stride = value_dim rounded up to 16)
//   Token t has position first_position + t and sees keys in
//   [max(0, position - window + 1, position / chunk * chunk), position], with a division that
//   rounds down. Window 0 and chunk 0 mean no bound.
//
// Keys are taken in spans of 512, aligned to absolute positions. Each span that a row sees is an
// online softmax (Milakov & Gimelshein 2018) of its own, in tiles of 64 aligned keys:
//   score = scale * (in-order fma chain over head_dim from +0), then, where they are given,
//     score = softcap * tanh(score / softcap),
//     score = fma(slope of the head, key position - position, score);
//   tile maximum; p = exp(score - m);
//   the sum of p runs in 16 lanes (lane = position % 16, ascending);
//   each output element is one fma chain over keys in order, rescaled once per tile.
// The state of a row in a span is its maximum m, its 16 sum lanes and its output. The first span's
// state is taken as it is. The states of later spans (m', sum', output') are merged into it one by
// one in ascending order:
//   M = max(m, m'); old = exp(m - M); new = exp(m' - M);
//   sum = fma(sum', new, sum * old), lane by lane; output = fma(output', new, output * old); m = M.
// At the end, once, the lanes fold as kernels.h says and out = output / sum. A head with a sink
// logit s has one more logit, which has no value (gpt-oss). It comes in after the fold:
//   M = max(m, s); old = exp(m - M); sum = fma(sum, old, exp(s - M)); out = output * old / sum.
// The result does not depend on which thread computes which span, and when: this lets threads share
// a long context.
// A key that a row does not see takes no part in that row's sums, whatever it holds: it may be
// stale, or the NaN of a later token.
struct AttendArgs {
  const float* q;
  int64_t q_stride;
  float* out;
  int64_t out_stride;
  const void* const* blocks;
  int64_t k_offset;
  int64_t v_offset;
  int64_t v_stride;
  // Outputs in a state, a multiple of 16: v_stride or more, and in CodedAttendArgs also head_dim or
  // more.
  int64_t state_width;
  int64_t head_dim;     // of queries and keys: 2 to 576
  int64_t value_dim;    // of values: 1 to 512
  int64_t group;
  int64_t tokens;
  int64_t first_position;
  int64_t window;
  int64_t chunk = 0;
  float scale;
  float softcap = 0.0f;                 // 0: none
  const float* sink_logits = nullptr;   // (group), or null
  const float* alibi_slopes = nullptr;  // (group), or null

  // With states, `attend` takes only the spans [first_span, end_span) and writes no `out`. It
  // writes the state of every row in each of these spans that the row sees, as
  // (spans, tokens, group, state) where a state is
  // [maximum, 15 unused][16 sum lanes][state_width outputs]. `merge_spans` makes `out` of the
  // states of all spans that any row sees. It reads neither q nor blocks.
  int64_t first_span = 0;
  int64_t end_span = 0;
  float* states = nullptr;
};

}  // namespace onward::cpu
