// The table of CPU inner loops, one instance per instruction set (cpu/isa/*.cpp). Everything here
// is plain C types and bodies-free on purpose: a shared inline function that one file compiles with
// AVX-512 may survive the link and run on a processor without it.
//
// Rules every instance obeys, so that results do not depend on batch, threads, chunks or cache:
//   * f32 results are bit-identical across instruction sets; the generic instance is the oracle.
//   * An output of a matrix product is ONE chain of fused multiply-adds over k in ascending order,
//     starting from +0, whatever the number of rows; bias and residual are added after the chain.
//   * A sum along a row runs in 16 lanes (element i goes to lane i % 16, ascending i), and lanes
//     fold 16 -> 8 -> 4 -> 2 -> 1 by adding lane j + width/2 to lane j.
// Rows are padded: every row stride and every width is a multiple of kLane, padding columns hold 0.
#pragma once

#include <cstdint>

#include "backend/codebooks.h"
#include "backend/row_scans.h"

namespace onward::cpu {

constexpr int64_t kLane = 16;  // floats in the widest register: all padding is to this
constexpr int64_t kPanelColumns =
    64;                               // output columns of a packed panel (the last may be narrower)
constexpr int64_t kBlockTokens = 16;  // tokens of a cache block: keys are lanes

constexpr int64_t kSpanKeys = 512;         // keys of one softmax of attention
constexpr int64_t kStateHead = 2 * kLane;  // floats of a softmax's state before its output

constexpr int64_t kGroupValues = 32;  // of k: a quantised weight or input has one scale for them

// Columns [first, first + columns) of one panel of packed weights times some rows:
// y[r][c] (+)= sum_k x[r][k] * panel[k][c] + bias[c].
//   panel f32, f16: [k][width] elements.
//   panel bf16: [k / 2][width][2]: the pair (k, k + 1) of one column lies together.
//   panel q8_0: for each group of 32 k [8][width][4] bytes, four k of one column together, which
//               hold weight + 128; then [width] f16 scales.
//   panel q4_0, q4_1: for each group [4][width][4] bytes: byte j of quad i holds k = 4 i + j in its
//               low and k = 16 + 4 i + j in its high half; then [width] f16 scales and, for q4_1,
//               [width] f16 minimums.
//   x: (rows, k); stride in elements; k is a multiple of kLane.
//      f32 for weights f32 and f16, bf16 bits for bf16; for the quantised ones int8, each row
//      padded with zeros to whole groups, with x_scales and x_sums from `quantize`.
//   y: (rows, columns) f32; bias: (columns) or null; add: y keeps its old value, y = y + (sum +
//   bias).
// bf16 rule (that of the vdpbf16ps instruction): within a pair the odd element is fused in first,
// then the even one; denormal inputs and results count as zero, in bias and residual too.
// Quantised rule, group by group in ascending order, where `dot` is the exact integer sum of x
// times weight (q4_0: less 8; q4_1: as stored):
//   sum = fma(float(dot), scale * x_scale, sum), then for q4_1
//   sum = fma(minimum, x_scale * float(x_sum), sum).
struct LinearArgs {
  const void* panel;
  int64_t width;  // of the panel: 16, 32, 48 or 64
  int64_t first;  // multiples of 16
  int64_t columns;
  int64_t k;
  const void* x;
  int64_t x_stride;
  const float* x_scales;  // (rows, groups), for quantised weights
  const int32_t* x_sums;  // (rows, groups): the sum of each group's int8 values
  int64_t rows;
  float* y;  // of column `first`
  int64_t y_stride;
  const float* bias;  // of column `first`
  bool add;
  const void* next;  // the panel that this thread is likely to take next, or null
};

// Causal attention of a run of consecutive tokens of ONE sequence over ONE key-value head.
//   q:   row of token t, head h (of the `group` heads that share the kv head) at
//        q + t * q_stride + h * head_dim; already rotated.
//   out: same layout, out_stride; written, not added to.
//   blocks[b]: start of the cache block of positions [16 b, 16 b + 16) (for b below first needed
//        block the pointer may be null). Inside it, for this layer and kv head:
//        keys   at byte k_offset: [head_dim][16]        (lanes are tokens)
//        values at byte v_offset: [16][v_stride]        (v_stride = head_dim rounded up to 16)
//   Token t has position first_position + t and sees keys in
//   [max(0, position - window + 1), position]; window 0 means all.
// Keys are taken in spans of 512, aligned to absolute positions. Each span that a row sees is an
// online softmax (Milakov & Gimelshein 2018) of its own, from nothing, in tiles of 64 keys, aligned
// too:
//   score = scale * (in-order fma chain over head_dim from +0); tile maximum; p = exp(score - m);
//   the sum of p runs in 16 lanes (lane = position % 16, ascending);
//   each output element is one fma chain over keys in order, rescaled once per tile.
// The state (maximum m, sum lanes, output) of the first span is taken as it is; those of the others
// (m', sum', output') are merged into it in ascending order, always two at a time:
//   M = max(m, m'); old = exp(m - M); new = exp(m' - M);
//   sum = fma(sum', new, sum * old), lane by lane; output = fma(output', new, output * old); m = M.
// At the end, once, the lanes fold as above and out = output / sum. So who computes which span of a
// row, and when, is free: that is how a long context is shared by threads.
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
  int64_t state_width;  // outputs in a state: v_stride or more, a multiple of 16
  int64_t head_dim;     // 2 to 512
  int64_t group;
  int64_t tokens;
  int64_t first_position;
  int64_t window;
  float scale;

  // With states, `attend` takes only the spans [first_span, end_span), and writes not `out` but the
  // state of every row in every one of them that the row sees: (spans, tokens, group, state), a
  // state being [maximum, 15 unused][16 sum lanes][state_width outputs]. `merge_spans` makes `out`
  // of them, given all spans that any row sees; it reads neither q nor blocks.
  int64_t first_span = 0;
  int64_t end_span = 0;
  float* states = nullptr;
};

// Keys and values as codes (csrc/backend/cache_layout.h). A vector of a head is padded with zeros
// to n coordinates, a multiple of 32. Then, but for q4_0, a key becomes the key less the centre,
// the mean of the keys at positions 4 to 15 of the sequence as block 0 stores them (sum in float32,
// ascending, times 1/12; 0 in the rotary pairs that the layout does not centre), where that block
// stays exact; and keys and values are rotated (`hadamard`
// below). A decoded coordinate is scale * integer.
//   int8: scale = largest magnitude / 127, rounded to f16; the integer is x over
//     the scale as stored, rounded to nearest even, at most 127 either way, and 0 where the scale
//     is 0; stored as integer + 128.
//   q4_0, as GGUF has it: scale = the coordinate of largest magnitude, the first such / -8; code =
//     min(15, floor(x * (1 / scale) + 8.5)) with the scale before its rounding to f16; the integer
//     is code - 8. Groups whose values are all below 2^-120 have scale 0 and codes 8.
//   turbo4, turbo3, turbo2: the integers are those of codebooks.h. unit = sqrt(|x|^2 / n) /
//     deviation. For each factor, step = unit * factor and every coordinate takes the integer c
//     nearest to x / step: as many magnitudes up from the smallest as there are midpoints, times
//     step, below |x|, and the sign of x (+ for 0). The first factor of the largest
//     ((x c) / (c c)) * (x c) stays, that of the best cosine. Scale: of values (x c) / (c c), which
//     errs least; of keys |x|^2 / (x c), so that scores do not shrink. 0 for a vector of norm 0.
// Sums over coordinates are chains in ascending order, products rounded on their own, not fused: so
// sixteen tokens are lanes. Where a coordinate (of the group, for q4_0) is not finite, or, for
// turbo, |x|^2 is not, the scale is a NaN; a scale above the range of f16 is infinite.
//
// The codes of 16 tokens lie in registers of 64 bytes, 16 lanes of 4, made for products of
// bytes:
//   keys:   byte j of lane t of register r is coordinate 4 r + j of token t
//   values: byte j of lane i of register q * (n / 16) + v is coordinate 16 v + i of token 4 q + j
// and registers are stored, by the bits of a code,
//   8: keys as they are, values with the upper bit flipped: the integer, a signed byte
//   4: register 2 i in the low halves of the bytes of stored register i, 2 i + 1 in the high ones
//   2: register 4 i + j in bits 2 j and 2 j + 1 of stored register i
//   3: the two lower bits like that, n / 16 stored registers; then n / 32 with the upper bits: that
//      of register 8 i + j is bit j of stored register i
// Scales: [n / 32 groups][16 tokens] for q4_0, else [16 tokens].

// How a side of a coded block is stored: the numbers of KvCodec (backend/cache_layout.h).
enum class Codes : uint8_t { exact, int8, q4_0, turbo4, turbo3, turbo2 };

// The same where rows see blocks as codes, or have sinks: of tokens that lie in one block of 16
// positions, so that they all see the same blocks as codes, those of [coded_begin, coded_end).
//   coded[b]: like blocks[b], for those; key and value codes and their scales at the offsets.
//   coded_dim: head_dim rounded up to 32; what follows head_dim in a coded vector is 0.
// What a row at position t sees is cut into units, each of keys [first, last] and a softmax of its
// own, from nothing, in tiles of 64 keys at absolute positions:
//   one for each coded span that any row sees, ascending: the keys of a span of 512 that are coded;
//   the sinks, where t >= window + sink_tokens: keys [0, sink_tokens), in block 0, with the query
//     turned by the row of sink_cosines and sink_sines: (a cos - b sin, b cos + a sin) of each pair
//     (a = q[i], b = q[i + head_dim / 2]), products rounded. Before that a row with sinks sees all
//     keys as if there were no window;
//   block 0, where anything is coded and it is not: its keys, with the row's own query;
//   the tail's spans, ascending: exact keys up to t, from coded_end on, or all where none is coded.
// The window of a row cuts every unit but the sinks. The state of the first unit in this order that
// a row sees is taken as it is; the others are merged into it by the rule above, and where values
// are rotated the output is rotated back when the last coded unit is in it.
//
// Exact keys and values, of a coded block too, are multiplied as above. Against coded keys a query,
// padded, is rotated if keys are, and rounded to 8 bits or, for q4_0, to 15: with m = max |q| and
// h = 127 or 16256,
//   n = q * (h / m), to nearest even; its scale is m / h; all 0 for m < 2^-100;
//   score = scale * (c + s), c the query's product with the centre where keys have one, before
//   padding and rotation, as a sum along a row (element i: fma into lane i % 16), else 0;
//   s = (query's scale) * (chain of fma(float(dot), key's scale, sum) over groups from +0), one
//   group but for q4_0, dot the exact integer sum over the group of n times the key's integers.
// Onto coded values, group by group: the weight of a key is w = p * its value scale; with m = max
// |w| over the keys of the tile that the row sees,
//   n = w * (16256 / m), to nearest even (0 for m < 2^-100);
//   output = fma(float(dot), m / 16256, output * rescale), dot the exact sum over the tile of n
//   times the value's integers.
// A NaN or an infinity among q or w makes the scale, and so all that it meets, a NaN.
struct CodedAttendArgs {
  AttendArgs exact;  // first_span, end_span and states are of no account
  const void* const* coded;
  Codes key_codes;
  Codes value_codes;
  int64_t key_codes_offset;
  int64_t value_codes_offset;
  int64_t key_scales_offset;
  int64_t value_scales_offset;
  int64_t next_codes;  // from a head's codes to the next one's, which may be fetched; and scales
  int64_t next_scales;
  int64_t coded_dim;
  int64_t coded_begin;  // blocks
  int64_t coded_end;    // coded_begin where nothing is coded
  const float*
      centre;  // what coded keys are less of, (head_dim) and zeros up to whole lanes; or null
  int64_t sink_tokens;        // 0 to 16
  const float* sink_cosines;  // of the first token: (tokens, head_dim / 2)
  const float* sink_sines;

  // Units by number: [first_coded_span, end_coded_span), sinks, block 0, [first_tail_span,
  // end_tail_span). A unit that no row sees has a number all the same.
  int64_t first_coded_span;
  int64_t end_coded_span;
  int64_t first_tail_span;
  int64_t end_tail_span;
  // With states, `attend_coded` takes only the units [first_unit, end_unit), and writes not `out`
  // but the state of every row in them: (units, tokens, group, state). `merge_units` makes `out` of
  // all units' states.
  int64_t first_unit = 0;
  int64_t end_unit = 0;
  float* states = nullptr;
};

struct Kernels {
  // "generic", "neon", "neondot", "avx2", "avx2vnni", "avx512", "avx512vnni", "avx512bf16"
  const char* name;

  // By the dtype of the weights.
  void (*linear_f32)(const LinearArgs&);
  void (*linear_f16)(const LinearArgs&);
  void (*linear_bf16)(const LinearArgs&);
  void (*linear_q8_0)(const LinearArgs&);
  void (*linear_q4_0)(const LinearArgs&);
  void (*linear_q4_1)(const LinearArgs&);
  // By what keys and values are stored as.
  void (*attend_f32)(const AttendArgs&);
  void (*attend_f16)(const AttendArgs&);
  void (*attend_bf16)(const AttendArgs&);
  void (*merge_spans)(const AttendArgs&);  // uses up the states
  void (*attend_coded_f32)(const CodedAttendArgs&);
  void (*attend_coded_f16)(const CodedAttendArgs&);
  void (*attend_coded_bf16)(const CodedAttendArgs&);
  void (*merge_units)(const CodedAttendArgs&);

  // y[i] = x[i] * (1 / sqrt(mean(x^2) + eps)) * weight[i], i < n. y may be x. (Zhang & Sennrich
  // 2019)
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* y);
  // y[i] = silu(gate[i]) * up[i]; n is a multiple of kLane. (SwiGLU, Shazeer 2020)
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* y);
  // Round to nearest even; NaN stays NaN. n is a multiple of kLane.
  void (*round_bf16)(const float* x, int64_t n, uint16_t* y);
  void (*round_f16)(const float* x, int64_t n, uint16_t* y);
  // Groups of 32 values to int8: scale = max |x| / 127, y = x * (127 / max |x|) rounded to nearest
  // even, sum = that of y. n is a multiple of kLane; half a group at the end is filled with zeros.
  // A group whose values are all below 2^-120 becomes zeros; one that holds a NaN or an infinity
  // has a NaN for its scale.
  void (*quantize)(const float* x, int64_t n, int8_t* y, float* scales, int32_t* sums);

  // The rotation of vectors that are stored as codes: it makes any of them look like a sample of a
  // normal distribution, which is what the codes are made for (TurboQuant, Zandieh et al. 2025).
  // Each of n coordinates, a multiple of 32 up to 512, times its sign (kRotationSigns); then blocks
  // of the powers of two that n is a sum of, largest first (96 = 64 + 32), each through Hadamard's
  // butterflies (a + b, a - b) over strides 1, 2, 4, ..., and times 1 / sqrt(size). In place.
  void (*hadamard)(float* x, int64_t n);
  // Back: butterflies, times 1 / sqrt(size), times signs.
  void (*inverse_hadamard)(float* x, int64_t n);
  // `hadamard` of sixteen vectors: x (n, 16), coordinate after coordinate.
  void (*hadamard_lanes)(float* x, int64_t n);
  // n is a multiple of kLane.
  void (*widen_f16)(const uint16_t* x, int64_t n, float* y);
  void (*widen_bf16)(const uint16_t* x, int64_t n, float* y);
  // Codes of sixteen vectors, x (n, 16), n a multiple of 32 up to 512: a byte for each in
  // codes (n, 16), and f16 scales, sixteen for all coordinates or, q4_0, for every group of 32.
  void (*encode_int8)(const float* x, int64_t n, uint8_t* codes, uint16_t* scales);
  void (*encode_q4_0)(const float* x, int64_t n, uint8_t* codes, uint16_t* scales);
  void (*encode_turbo4)(const float* x, int64_t n, bool keys, uint8_t* codes, uint16_t* scales);
  void (*encode_turbo3)(const float* x, int64_t n, bool keys, uint8_t* codes, uint16_t* scales);
  void (*encode_turbo2)(const float* x, int64_t n, bool keys, uint8_t* codes, uint16_t* scales);

  RowScans scans;  // what sampling asks of a row of logits

  // Probes for `onward doctor --measure` and the benchmarks: what this core can do at most.
  // Sum of all 64-bit words, so that the reads cannot be dropped; bytes is a multiple of 256.
  uint64_t (*probe_read)(const void* data, int64_t bytes);
  // Runs `iterations` rounds of independent in-register multiply-adds; returns operations done
  // (2 per multiply-add). probe_bf16 and probe_int8 use what linear_bf16 and linear_q8_0 use; of
  // the generic instance they are no measure.
  int64_t (*probe_f32)(int64_t iterations, float* sink);
  int64_t (*probe_bf16)(int64_t iterations, float* sink);
  int64_t (*probe_int8)(int64_t iterations, float* sink);
};

// Each is null where the compiler cannot target it.
const Kernels* generic_kernels();
const Kernels* avx2_kernels();
const Kernels* avx2vnni_kernels();
const Kernels* avx512_kernels();
const Kernels* avx512vnni_kernels();
const Kernels* avx512bf16_kernels();
const Kernels* neon_kernels();
const Kernels* neondot_kernels();

// The best instance that this processor AND its operating system (saved register state) can run,
// or the one that ONWARD_CPU_ISA names; InvalidArgument when that one is unknown or cannot run.
const Kernels& select_kernels();
// Names of every instance this machine can run, slowest first, comma-separated.
const char* available_kernels();

}  // namespace onward::cpu
