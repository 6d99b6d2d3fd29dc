// Converts stored rows of any file dtype to float32. Each value is the float32 that the format's
// definition gives, in its order of operations.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace onward {

// out[i] = value first + i of the row that starts at `row`, i < count. For block formats `first`
// and `count` are multiples of 32, even if a block is larger.
void read_row(DType dtype, const void* row, int64_t first, int64_t count, float* out);

// The same 32 values of a Q4_K row as they are stored: scale * code + minimum, codes 0 to 15.
struct Q4kRun {
  float scale;
  float minimum;
  int codes[32];
};
Q4kRun read_q4_k_run(const void* row, int64_t first);

// 32 values as one scale and whole numbers: scale * code.
struct ScaledRun {
  float scale;
  int8_t codes[32];
};
bool has_scaled_runs(DType dtype);
// `dtype` is a format that has such runs.
ScaledRun read_scaled_run(DType dtype, const void* row, int64_t first);

}  // namespace onward
