#include "sampling/processors.h"

#include <limits>

namespace onward {

void apply_repetition_penalty(float* scores, const std::vector<uint8_t>& seen, double penalty) {
  if (penalty == 1.0) return;
  const float p = static_cast<float>(penalty);
  for (size_t id = 0; id < seen.size(); ++id) {
    if (seen[id]) scores[id] = scores[id] < 0 ? scores[id] * p : scores[id] / p;
  }
}

void mask_tokens(float* scores, const std::vector<int32_t>& masked) {
  for (const int32_t id : masked) scores[id] = -std::numeric_limits<float>::infinity();
}

}  // namespace onward
