// The largest scores of a row.
#pragma once

#include <cstdint>
#include <vector>

namespace onward {

struct ScoredToken {
  int32_t id;
  float score;
};

// Index of the first maximum, as torch.argmax; -1 if all are -infinity.
int64_t first_largest(const float* scores, int64_t n);

// The k largest, best first, among equals the lower id first; without -infinity. For small k.
std::vector<ScoredToken> best_tokens(const float* scores, int64_t n, int64_t k);

}  // namespace onward
