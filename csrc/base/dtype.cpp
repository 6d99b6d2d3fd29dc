#include "base/dtype.h"

#include <algorithm>
#include <cctype>

#include "onward/error.h"

namespace onward {
namespace {

struct DTypeFacts {
  const char* name;
  int64_t block_values;
  int64_t block_bytes;
};

// Indexed by DType. Block layouts of the quantised formats: the GGUF specification.
constexpr DTypeFacts kFacts[] = {
    {"f32", 1, 4},        {"f16", 1, 2},
    {"bf16", 1, 2},       {"q8_0", 32, 2 + 32},  // f16 scale, 32 int8
    {"q4_0", 32, 2 + 16},                        // f16 scale, 32 nibbles
    {"q4_1", 32, 4 + 16},                        // f16 scale, f16 minimum, 32 nibbles
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
  throw InvalidArgument("dtype: unknown name '" + name +
                        "', expected one of f32, f16, bf16, q8_0, q4_0, q4_1");
}

const char* dtype_name(DType dtype) { return facts(dtype).name; }
int64_t dtype_block_values(DType dtype) { return facts(dtype).block_values; }
int64_t dtype_block_bytes(DType dtype) { return facts(dtype).block_bytes; }

}  // namespace onward
