// The arguments of attention over coded keys and values, how codes are found and stored, and the
// order of the arithmetic. Plain types only (see kernels.h).
#pragma once

#include <cstdint>

#include "backend/kv_codecs.h"
#include "cpu/attend_args.h"

namespace onward::cpu {

// Keys and values as codes (backend/kv_codecs.h, backend/cache_layout.h).
//
// A head's vector is padded with zeros to n coordinates, a multiple of 32. For every codec but q4_0
// it is then rotated (`hadamard` in kernels.h). A key is first taken relative to the centre, where
// block 0 stays exact. The centre is the mean of the keys at positions 4 to 15 of the sequence as
// block 0 stores them (sum in float32, ascending, times 1/12), and 0 in the rotary pairs that the
// layout does not centre. A decoded coordinate is scale * integer.
//   int8: scale = largest magnitude / 127, rounded to f16. The integer is x over the scale as
//     stored, rounded to nearest even, between -127 and 127, and 0 where the scale is 0. It is
//     stored as integer + 128.
//   q4_0, as in GGUF: scale = (the first coordinate of largest magnitude) / -8; code =
//     min(15, floor(x * (1 / scale) + 8.5)) with the scale before its rounding to f16. The integer
//     is code - 8. Groups whose values are all below 2^-120 have scale 0 and codes 8.
//   turbo4, turbo3, turbo2: the integers of codebooks.h. unit = sqrt(|x|^2 / n) / deviation. For
//     each factor, step = unit * factor, and every coordinate takes the integer c nearest to
//     x / step: it goes up from the smallest magnitude by one for each midpoint that, times step,
//     is below |x|, and takes the sign of x (+ for 0). The factor of the largest
//     ((x c) / (c c)) * (x c) is kept, the first of them: it gives the best cosine. The scale of
//     values is (x c) / (c c), which has the least error. The scale of keys is |x|^2 / (x c), which
//     keeps scores from shrinking. It is 0 for a vector of norm 0.
// Sums over coordinates are chains in ascending order whose products are rounded on their own, not
// fused, so that sixteen tokens can be lanes. Where a coordinate (of the group, for q4_0) is not
// finite, or for turbo |x|^2 is not, the scale is a NaN. A scale above the range of f16 is
// infinite.
//
// The codes of 16 tokens lie in registers of 64 bytes, 16 lanes of 4, made for products of bytes:
//   keys:   byte j of lane t of register r is coordinate 4 r + j of token t
//   values: byte j of lane i of register q * (n / 16) + v is coordinate 16 v + i of token 4 q + j
// and registers are stored, by the bits of a code, as
//   8: keys as they are, values with the upper bit flipped: the integer, a signed byte
//   4: register 2 i in the low halves of the bytes of stored register i, 2 i + 1 in the high halves
//   2: register 4 i + j in bits 2 j and 2 j + 1 of stored register i
//   3: the two lower bits like that, in n / 16 stored registers, then n / 32 registers with the
//      upper bits: the upper bit of register 8 i + j is bit j of stored register i
// Scales: [n / 32 groups][16 tokens] for q4_0, else [16 tokens].

// Attention where rows see blocks as codes, or have sinks. The tokens lie in one block of 16
// positions, so that all of them see the same blocks [coded_begin, coded_end) as codes.
//   coded[b]: like blocks[b], for coded blocks; codes and scales lie at the offsets below.
//   coded_dim: head_dim rounded up to 32; the coordinates after head_dim are 0.
// What a row at position t sees is cut into units. Each unit covers keys [first, last] and is a
// softmax of its own, in tiles of 64 keys at absolute positions:
//   one for each coded span that any row sees, ascending: the coded keys of a span of 512;
//   the sinks, where t >= window + sink_tokens: keys [0, sink_tokens), in block 0, with the query
//     turned by the row of sink_cosines and sink_sines: (a cos - b sin, b cos + a sin) of each pair
//     (a = q[i], b = q[i + head_dim / 2]), products rounded. Before that position a row with sinks
//     sees all keys, as if there were no window;
//   block 0, where anything is coded and block 0 is not: its keys, with the row's own query;
//   the tail's spans, ascending: exact keys up to t, from coded_end on, or all where none is coded.
// The window of a row cuts every unit but the sinks. The state of the first unit that a row sees is
// taken as it is. The others are merged into it in this order by the rule of AttendArgs. Where
// values are rotated, the output is rotated back after the last coded unit is merged.
//
// Exact keys and values, of a coded block too, are multiplied as in AttendArgs. Against coded keys
// the padded query is rotated if keys are, and rounded to 8 bits or, for q4_0, to 15: with m =
// max |q| and h = 127 or 16256,
//   n = q * (h / m), to nearest even; its scale is m / h; all 0 for m < 2^-100;
//   score = scale * (c + s), followed by the soft-cap and the slope of AttendArgs. The distance of
//   a sink is counted from the last position that sees the sinks without a gap. c is the query's product with the centre where keys have one, before
//   padding and rotation, as a sum along a row (element i: fma into lane i % 16), else 0;
//   s = (query's scale) * (chain of fma(float(dot), key's scale, sum) over groups from +0), one
//   group but for q4_0. dot is the exact integer sum over the group of n times the key's integers.
// Onto coded values, group by group: the weight of a key is w = p * its value scale. With m = max
// |w| over the keys of the tile that the row sees,
//   n = w * (16256 / m), to nearest even (0 for m < 2^-100);
//   output = fma(float(dot), m / 16256, output * rescale), where dot is the exact sum over the tile
//   of n times the value's integers.
// A NaN or an infinity among q or w makes the scale a NaN, and with it every result that uses it.
struct CodedAttendArgs {
  AttendArgs exact;  // first_span, end_span and states are ignored
  const void* const* coded;
  KvCodec key_codec;
  KvCodec value_codec;
  int64_t key_codes_offset;
  int64_t value_codes_offset;
  int64_t key_scales_offset;
  int64_t value_scales_offset;
  int64_t next_codes;   // bytes from a head's codes to the next head's, which may be prefetched
  int64_t next_scales;  // the same for scales
  int64_t coded_dim;
  int64_t coded_begin;        // blocks
  int64_t coded_end;          // coded_begin where nothing is coded
  const float* centre;        // of the coded keys: (head_dim), then zeros to whole lanes; or null
  int64_t sink_tokens;        // 0 to 16
  const float* sink_cosines;  // (tokens, head_dim / 2), from the first token on
  const float* sink_sines;

  // Units by number: [first_coded_span, end_coded_span), sinks, block 0, [first_tail_span,
  // end_tail_span). A unit that no row sees has a number too.
  int64_t first_coded_span;
  int64_t end_coded_span;
  int64_t first_tail_span;
  int64_t end_tail_span;
  // With states, `attend_coded` takes only the units [first_unit, end_unit) and writes no `out`. It
  // writes the state of every row in these units: (units, tokens, group, state). `merge_units`
  // makes `out` of the states of all units.
  int64_t first_unit = 0;
  int64_t end_unit = 0;
  float* states = nullptr;
};

}  // namespace onward::cpu
