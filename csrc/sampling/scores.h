// The change of one score by a processor.
#pragma once

#include <algorithm>
#include <limits>

namespace onward {

inline constexpr float kBanned = -std::numeric_limits<float>::infinity();

// Sets a score, bounded to float32's finite range. A banned token stays banned.
inline void change_score(float& score, double value) {
  constexpr double largest = std::numeric_limits<float>::max();
  if (score != kBanned) score = static_cast<float>(std::clamp(value, -largest, largest));
}

}  // namespace onward
