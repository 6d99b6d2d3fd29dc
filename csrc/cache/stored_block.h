// A block of a prefix as it leaves the cache, for a file, and comes back. Knows where the tokens of
// an exact block lie; not whose they are.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cache_layout.h"

namespace onward {

struct StoredBlock {
  int64_t group = 0;
  bool coded = false;
  int64_t index = 0;  // among the sequence's blocks
  std::vector<char> bytes;
};

// Zeros in the place of the tokens of an exact block from `first` on: what a longer sequence, or an
// earlier use of the memory, has left there is nobody else's business.
void clear_tokens(const CacheLayout& layout, int64_t first, StoredBlock& exact);

}  // namespace onward
