// The dtypes of weights and cache entries, with the names that files use. The table below is the
// only list of them: the enumeration, names, sizes and messages come from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace onward {

// Use of a dtype: kMatrix for a weight matrix in memory or in a file, kFile for files only.
enum class DTypeUse : uint8_t { kMatrix, kFile };

// row(name, values in a block, bytes of a block, use). Quantised formats store blocks of 32 or 256
// values; the others are blocks of one. Source of the block layouts: the GGUF specification.
#define ONWARD_DTYPES(row)                                                                      \
  row(f32, 1, 4, kMatrix) row(f16, 1, 2, kMatrix) row(bf16, 1, 2, kMatrix)                      \
      row(q8_0, 32, 2 + 32, kMatrix)           /* f16 scale, 32 int8 */                         \
      row(q4_0, 32, 2 + 16, kMatrix)           /* f16 scale, 32 nibbles */                      \
      row(q4_1, 32, 4 + 16, kMatrix)           /* f16 scale, f16 minimum, 32 nibbles */         \
      row(q4_k, 256, 4 + 12 + 128, kFile)      /* f16 scales of scales and minimums, nibbles */ \
      row(q5_k, 256, 4 + 12 + 32 + 128, kFile) /* the same with 256 fifth bits */               \
      row(q6_k, 256, 128 + 64 + 16 + 2, kFile) /* nibbles, bit pairs, int8 scales, f16 scale */ \
      row(q5_0, 32, 2 + 4 + 16, kFile)         /* f16 scale, 32 fifth bits, 32 nibbles */       \
      row(q5_1, 32, 4 + 4 + 16, kFile)         /* the same with an f16 minimum */               \
      row(q2_k, 256, 16 + 64 + 4, kFile)       /* scales and minimums, bit pairs, f16 scales */ \
      row(q3_k, 256, 32 + 64 + 12 + 2, kFile)  /* third bits, bit pairs, 6-bit scales, f16 */   \
      row(iq4_nl, 32, 2 + 16, kFile)           /* f16 scale, 32 nibbles */                      \
      row(iq4_xs, 256, 4 + 4 + 128, kFile)     /* f16 scale, 8 scales of 6 bits, nibbles */     \
      row(mxfp4, 32, 1 + 16, kFile)            /* 8 bits of exponent, 32 nibbles */             \
      row(tq1_0, 256, 48 + 4 + 2, kFile)       /* base-3 digits, 5 or 4 a byte, f16 scale */    \
      row(tq2_0, 256, 64 + 2, kFile)           /* 256 bit pairs, f16 scale */                   \
      row(iq2_xxs, 256, 2 + 64, kFile)         /* f16 scale; codes, signs, scales of 32 */      \
      row(iq2_xs, 256, 2 + 64 + 8, kFile)      /* f16 scale, codes with signs, 4-bit scales */  \
      row(iq2_s, 256, 2 + 64 + 8 + 8, kFile)   /* f16 scale, codes, signs, high bits, scales */ \
      row(iq3_xxs, 256, 2 + 64 + 32, kFile)    /* f16 scale, codes, signs and scales of 32 */   \
      row(iq3_s, 256, 2 + 72 + 32 + 4, kFile)  /* f16 scale, codes of 9 bits, signs, scales */

enum class DType : uint8_t {
#define ONWARD_ENUMERATOR(name, values, bytes, use) name,
  ONWARD_DTYPES(ONWARD_ENUMERATOR)
#undef ONWARD_ENUMERATOR
};

// The dtype of a name in either case. InvalidArgument, which lists all names, for any other name.
DType parse_dtype(const std::string& name);
const char* dtype_name(DType dtype);

// Whether a weight matrix in memory can have it.
bool is_matrix_dtype(DType dtype);
// The names of these dtypes, for messages: "f32, f16, ... or q4_1".
std::string matrix_dtype_names();

// Consecutive values of an output that share a scale, in a quantised weight matrix.
constexpr int64_t kGroupValues = 32;

int64_t dtype_block_values(DType dtype);
int64_t dtype_block_bytes(DType dtype);

}  // namespace onward
