#include "cache/stored_block.h"

#include <cstring>

namespace onward {

void clear_tokens(const CacheLayout& layout, int64_t first, StoredBlock& exact) {
  constexpr int64_t kTokens = CacheLayout::kBlockTokens;
  const int64_t value = layout.value_bytes();
  const auto zero = [](char* begin, int64_t bytes) {
    std::memset(begin, 0, static_cast<size_t>(bytes));
  };
  char* head = exact.bytes.data();
  char* const end = head + layout.exact_block_bytes(exact.group);
  for (; head < end; head += layout.head_bytes()) {
    for (int64_t d = 0; d < layout.head_dim; ++d) {  // keys (head_dim, 16)
      zero(head + (d * kTokens + first) * value, (kTokens - first) * value);
    }
    zero(head + layout.exact_keys_bytes() + first * layout.value_stride() * value,  // (16, stride)
         (kTokens - first) * layout.value_stride() * value);
  }
}

}  // namespace onward
