// The arguments of a matrix product kernel, the layout of packed weights, and the order of the
// arithmetic. Plain types only (see kernels.h).
#pragma once

#include <cstdint>

namespace onward::cpu {

constexpr int64_t kLane = 16;          // floats in the widest register: all padding is to this
constexpr int64_t kPanelColumns = 64;  // output columns of a packed panel; the last may be narrower
constexpr int64_t kGroupValues = 32;   // values of k that share a scale in quantised formats

// Columns [first, first + columns) of one panel of packed weights times some rows:
//   y[r][c] (+)= sum_k x[r][k] * panel[k][c] + bias[c].
//
// Panel layouts:
//   f32, f16:   [k][width] elements.
//   bf16:       [k / 2][width][2]: the pair (k, k + 1) of one column lies together.
//   q8_0:       for each group of 32 k: [8][width][4] bytes, four k of one column together, each
//               byte holding weight + 128; then [width] f16 scales.
//   q4_0, q4_1: for each group of 32 k: [4][width][4] bytes; byte j of quad i holds k = 4 i + j in
//               its low half and k = 16 + 4 i + j in its high half; then [width] f16 scales and,
//               for q4_1, [width] f16 minimums.
//
// Arithmetic:
//   f32, f16: one chain of fused multiply-adds over k in ascending order, starting from +0.
//   bf16 (the rule of the vdpbf16ps instruction): within a pair the odd element is fused first,
//   then
//     the even one. Denormal inputs and results count as zero, also in bias and residual.
//   Quantised: group by group in ascending order, where `dot` is the exact integer sum of x times
//     weight (for q4_0 the stored value less 8, for q4_1 the stored value):
//       sum = fma(float(dot), scale * x_scale, sum), and then for q4_1
//       sum = fma(minimum, x_scale * float(x_sum), sum).
//   Bias and residual are added after the chain.
struct LinearArgs {
  const void* panel;
  int64_t width;    // of the panel: 16, 32, 48 or 64
  int64_t first;    // a multiple of 16
  int64_t columns;  // a multiple of 16
  int64_t k;        // a multiple of kLane

  // (rows, k). Floats for f32 and f16 weights, bf16 bits for bf16 weights. For quantised weights
  // int8, each row padded with zeros to whole groups, with x_scales and x_sums from `quantize`.
  const void* x;
  int64_t x_stride;       // elements
  const float* x_scales;  // (rows, groups), for quantised weights
  const int32_t* x_sums;  // (rows, groups): the sum of each group's int8 values
  int64_t rows;
  float* y;  // (rows, columns), from column `first` on
  int64_t y_stride;
  const float* bias;  // (columns), from column `first` on, or null
  bool add;           // y keeps its old value: y = y + (sum + bias)
  const void* next;   // the panel that this thread probably takes next, or null
};

}  // namespace onward::cpu
