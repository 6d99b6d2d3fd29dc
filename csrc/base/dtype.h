// Storage dtypes of weights and cache entries, with their names in files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace onward {

enum class DType : uint8_t {
  f32,
  f16,
  bf16,
  q8_0,
  q4_0,
  q4_1,
  q4_k,
  q5_k,
  q6_k,
  q5_0,
  q5_1,
  q2_k,
  q3_k,
  iq4_nl,
  iq4_xs,
  mxfp4,
  tq1_0,
  tq2_0,
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq3_xxs,
  iq3_s
};

// Parses one of the names above, in upper or lower case. Otherwise throws InvalidArgument.
DType parse_dtype(const std::string& name);
const char* dtype_name(DType dtype);

// Whether a matrix in memory can have this dtype: f32, f16, bf16, q8_0, q4_0, q4_1.
bool is_matrix_dtype(DType dtype);

// In a quantised weight: the number of consecutive values of an output that share a scale.
constexpr int64_t kGroupValues = 32;

// Quantised formats store blocks of 32 or 256 values (256: the K, TQ, IQ2 and IQ3 formats, IQ4_XS).
// All other dtypes have blocks of one value.
int64_t dtype_block_values(DType dtype);
int64_t dtype_block_bytes(DType dtype);

}  // namespace onward
