// Quantised weights, 32 of one output at a time: copied from a file's block, or rounded from
// floats.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace onward {

// weight = scale * (code - zero) + minimum, where zero is 128 (q8_0), 8 (q4_0) or 0 (q4_1), and
// only q4_1 has a minimum.
struct WeightBlock {
  uint16_t scale = 0;    // f16 bits
  uint16_t minimum = 0;  // f16 bits
  uint8_t codes[kGroupValues] = {};
};

// Whether both formats hold weights in the same codes, so that none is rounded.
bool holds_same_codes(DType stored, DType packed);

// The block of values [first, first + 32) of a stored row, first a multiple of 32, as the format
// that holds the same codes. The products that are scale and minimum of q4_k, and the scale of
// iq4_xs, iq2_xxs, iq3_xxs and iq3_s, are rounded to f16.
WeightBlock stored_block(DType stored, const void* row, int64_t first);

// The block nearest to 32 floats. q8_0: the largest magnitude becomes 127. q4_0, q4_1: of several
// scales the one with the smallest squared error, after a least-squares fit to its codes. A scale
// is never rounded to zero, and values beyond the format's range are cut to it (RangeCheck refuses
// them). A NaN or an infinity makes the scale a NaN.
WeightBlock rounded_block(DType packed, const float* values);

// out: (32)
void read_block(DType packed, const WeightBlock& block, float* out);

}  // namespace onward
