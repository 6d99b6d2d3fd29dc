#include "base/dtype.h"

#include <algorithm>
#include <cctype>
#include <iterator>

#include "base/error.h"

namespace onward {
namespace {

struct DTypeFacts {
  const char* name;
  int64_t block_values;
  int64_t block_bytes;
  DTypeUse use;
};

// Indexed by DType.
constexpr DTypeFacts kFacts[] = {
#define ONWARD_FACTS(name, values, bytes, use) {#name, values, bytes, DTypeUse::use},
    ONWARD_DTYPES(ONWARD_FACTS)
#undef ONWARD_FACTS
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
bool is_matrix_dtype(DType dtype) { return facts(dtype).use == DTypeUse::kMatrix; }

std::string matrix_dtype_names() {
  std::string names, last;
  for (const DTypeFacts& each : kFacts) {
    if (each.use != DTypeUse::kMatrix) continue;
    if (!last.empty()) names += (names.empty() ? "" : ", ") + last;
    last = each.name;
  }
  return names + " or " + last;
}

}  // namespace onward
