#include "base/dtype.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace onward {
namespace {

struct DTypeFacts {
  const char* name;
  int64_t block_values;
  int64_t block_bytes;
};

// Indexed by DType. The block layouts of the quantised formats come from the GGUF specification.
constexpr DTypeFacts kFacts[] = {
    {"f32", 1, 4},
    {"f16", 1, 2},
    {"bf16", 1, 2},
    {"q8_0", 32, 2 + 32},              // f16 scale, 32 int8
    {"q4_0", 32, 2 + 16},              // f16 scale, 32 nibbles
    {"q4_1", 32, 4 + 16},              // f16 scale, f16 minimum, 32 nibbles
    {"q4_k", 256, 4 + 12 + 128},       // f16 scales of scales and of minimums, those, 256 nibbles
    {"q5_k", 256, 4 + 12 + 32 + 128},  // the same with 256 fifth bits
    {"q6_k", 256, 128 + 64 + 16 + 2},  // 256 nibbles, 256 bit pairs, int8 scales, f16 scale
    {"q5_0", 32, 2 + 4 + 16},          // f16 scale, 32 fifth bits, 32 nibbles
    {"q5_1", 32, 4 + 4 + 16},          // f16 scale, f16 minimum, 32 fifth bits, 32 nibbles
    {"q2_k", 256, 16 + 64 + 4},        // nibbles of scales and minimums, 256 bit pairs, their scales
    {"q3_k", 256, 32 + 64 + 12 + 2},   // 256 third bits, 256 bit pairs, 16 scales of 6 bits, f16
    {"iq4_nl", 32, 2 + 16},            // f16 scale, 32 nibbles
    {"iq4_xs", 256, 4 + 4 + 128},      // f16 scale, 8 scales of 6 bits, 256 nibbles
    {"mxfp4", 32, 1 + 16},             // 8 bits of exponent, 32 nibbles
    {"tq1_0", 256, 48 + 4 + 2},        // 256 base-3 digits, 5 or 4 to a byte, f16 scale
    {"tq2_0", 256, 64 + 2},            // 256 bit pairs, f16 scale
    {"iq2_xxs", 256, 2 + 64},          // f16 scale; codes, signs and scales of 32 values, 8 times
    {"iq2_xs", 256, 2 + 64 + 8},       // f16 scale, 32 codes with signs, 16 scales of 4 bits
    {"iq2_s", 256, 2 + 64 + 8 + 8},    // f16 scale, 32 codes, their signs and high bits, 16 scales
    {"iq3_xxs", 256, 2 + 64 + 32},     // f16 scale, 64 codes, signs and scales of 32 values, 8 times
    {"iq3_s", 256, 2 + 72 + 32 + 4},   // f16 scale, 64 codes of 9 bits, signs, 8 scales
};

const DTypeFacts& facts(DType dtype) { return kFacts[static_cast<size_t>(dtype)]; }

}  // namespace

DType parse_dtype(const std::string& name) {
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (size_t i = 0; i < std::size(kFacts); ++i) {
    if (lower == kFacts[i].name) return static_cast<DType>(i);
  }
  std::string known;
  for (const DTypeFacts& each : kFacts) {
    known += (known.empty() ? "" : ", ") + std::string(each.name);
  }
  throw InvalidArgument("dtype: unknown name '" + name + "', expected one of " + known);
}

const char* dtype_name(DType dtype) { return facts(dtype).name; }
int64_t dtype_block_values(DType dtype) { return facts(dtype).block_values; }
int64_t dtype_block_bytes(DType dtype) { return facts(dtype).block_bytes; }

bool is_matrix_dtype(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::q8_0:
    case DType::q4_0:
    case DType::q4_1:
      return true;
    default:
      return false;
  }
}

}  // namespace onward
