// Scans of one row of floats in host memory: a maximum, a sum, a selection. The sampler uses them
// on logits. cpu/isa implements them once for each instruction set, and all implementations give
// the same bits.
//
// A sum is in float64 and has 16 lanes. Element i is added to lane i % 16 in ascending order of i.
// Then the lanes are folded 16 -> 8 -> 4 -> 2 -> 1 by adding lane j + width/2 to lane j. Rows need
// no alignment or padding. Elements must not be NaN, except for all_finite.
#pragma once

#include <cstdint>

namespace onward {

struct RowScans {
  static constexpr int64_t kGatherRoom = 16;

  // Whether no element is infinite or NaN.
  bool (*all_finite)(const float* x, int64_t n);
  // The largest element; -infinity if there is none. A zero result is positive.
  float (*largest)(const float* x, int64_t n);
  // y[i] = float((double(x[i]) - shift) * factor); returns the smallest y[i]. y may be x.
  // Infinities do not change. shift and factor must be finite, and factor > 0.
  float (*rescale)(const float* x, double shift, double factor, int64_t n, float* y);
  // y[i] = exp(x[i]) for x[i] <= 88 with a relative error of 1e-7; 0 below -87.3. Returns the sum
  // of all y[i]. y may be x.
  double (*exponentials)(const float* x, int64_t n, float* y);
  // Sum of a[i] * b[i].
  double (*dot)(const float* a, const float* b, int64_t n);
  // Sum of value[i] over all i with key[i] >= least.
  double (*sum_at_least)(const float* key, const float* value, float least, int64_t n);
  // Writes (value[i], id[i]) of all i with low <= key[i] < high to value_out and id_out in order,
  // and returns their number. Without `id` the id is i. The outputs need space for n + kGatherRoom
  // elements; elements after the returned number are undefined. value_out may be value or key, and
  // id_out may be id.
  int64_t (*gather_range)(const float* key, float low, float high, const float* value,
                          const int32_t* id, int64_t n, float* value_out, int32_t* id_out);
};

// The scans of the instruction set that this process selected first (ONWARD_CPU_ISA).
const RowScans& row_scans();

}  // namespace onward
