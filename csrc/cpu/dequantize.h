// Stored rows of any file dtype -> float32. Exact for every dtype: each stored value is a float32.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace onward::cpu {

// out[i] = value first + i of the row that starts at `row`, i < count. For block formats `first`
// and `count` are multiples of 32.
void read_row(DType dtype, const void* row, int64_t first, int64_t count, float* out);

}  // namespace onward::cpu
