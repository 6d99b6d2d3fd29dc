// Storage dtypes of weights and cache entries, by the names that files use for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace onward {

enum class DType : uint8_t { f32, f16, bf16, q8_0, q4_0, q4_1 };

// "F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1" in either case; InvalidArgument for anything else.
DType parse_dtype(const std::string& name);
const char* dtype_name(DType dtype);

// Quantised formats store blocks of 32 values; the others are blocks of one.
int64_t dtype_block_values(DType dtype);
int64_t dtype_block_bytes(DType dtype);

}  // namespace onward
