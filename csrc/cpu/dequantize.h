// Stored rows of any file dtype -> float32: each value is the float32 that the format's own
// definition gives, in its order of operations.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace onward::cpu {

// out[i] = value first + i of the row that starts at `row`, i < count. For block formats `first`
// and `count` are multiples of 32, also where a block is larger.
void read_row(DType dtype, const void* row, int64_t first, int64_t count, float* out);

}  // namespace onward::cpu
