// Scans of one row of floats in the host's memory, such as the logits that a sampler looks at. The
// processor's kernels implement them (cpu/isa), one instance per instruction set, all to the same
// bits. Knows nothing of tokens or of sampling.
//
// A sum runs in float64, in 16 lanes: element i goes to lane i % 16, ascending i, and lanes fold
// 16 -> 8 -> 4 -> 2 -> 1 by adding lane j + width/2 to lane j. Rows need no alignment or padding.
// No element is NaN, except where all_finite looks for it.
#pragma once

#include <cstdint>

namespace onward {

struct RowScans {
  static constexpr int64_t kGatherRoom = 16;

  // Whether no element is infinite or NaN.
  bool (*all_finite)(const float* x, int64_t n);
  // -infinity of none. A zero is positive.
  float (*largest)(const float* x, int64_t n);
  // y[i] = float((double(x[i]) - shift) * factor); returns the smallest. y may be x. Infinities
  // stay what they are; shift and factor are finite, factor > 0.
  float (*rescale)(const float* x, double shift, double factor, int64_t n, float* y);
  // y[i] = exp(x[i]) for x[i] <= 88, to a relative error of 1e-7, 0 below -87.3; returns their sum.
  // y may be x.
  double (*exponentials)(const float* x, int64_t n, float* y);
  // Sum of a[i] * b[i].
  double (*dot)(const float* a, const float* b, int64_t n);
  // Sum of value[i] over the i with key[i] >= least.
  double (*sum_at_least)(const float* key, const float* value, float least, int64_t n);
  // Moves (value[i], id[i]) of the i with low <= key[i] < high to the front of value_out and
  // id_out, in order, and returns how many; without `id` the number i is the id. The outputs have
  // room for n + kGatherRoom elements, and what lies behind the returned count is undefined.
  // value_out may be value or key, and id_out id.
  int64_t (*gather_range)(const float* key, float low, float high, const float* value,
                          const int32_t* id, int64_t n, float* value_out, int32_t* id_out);
};

// Those of the instruction set that this process selected first (ONWARD_CPU_ISA).
const RowScans& row_scans();

}  // namespace onward
