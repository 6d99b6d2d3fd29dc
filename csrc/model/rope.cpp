#include "model/rope.h"

#include <cmath>

namespace onward {
namespace {

// Dynamic NTK scaling (bloc97 2023, as Hugging Face computes it): beyond the original context the
// base grows with the length of the sequence so far, which is p + 1 at position p.
std::vector<float> dynamic_inv_freq(const RopeSpec& rope, int64_t position) {
  const double half = static_cast<double>(rope.inv_freq.size());
  const double dim = 2 * half;
  const double ratio =
      static_cast<double>(position + 1) / static_cast<double>(rope.dynamic_original_context);
  const double base = rope.theta * std::pow(rope.dynamic_factor * ratio - (rope.dynamic_factor - 1),
                                            dim / (dim - 2));
  std::vector<float> inv_freq(rope.inv_freq.size());
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    inv_freq[i] = static_cast<float>(1.0 / std::pow(base, static_cast<double>(i) / half));
  }
  return inv_freq;
}

// The product is rounded to float32, as in the reference; at position 100,000 this rounding is the
// largest difference between implementations.
double angle_of(int64_t position, float frequency) {
  return static_cast<float>(position) * frequency;
}

void append(const std::vector<float>& inv_freq, const RopeSpec& rope, int64_t position,
            std::vector<float>& cosines, std::vector<float>& sines) {
  for (const float frequency : inv_freq) {
    const double angle = angle_of(position, frequency);
    const float factor = frequency == 0.0f ? 1.0f : rope.attention_factor;
    cosines.push_back(static_cast<float>(std::cos(angle)) * factor);
    sines.push_back(static_cast<float>(std::sin(angle)) * factor);
  }
}

}  // namespace

void append_rope(const RopeSpec& rope, int64_t position, std::vector<float>& cosines,
                 std::vector<float>& sines) {
  if (rope.dynamic_factor != 0 && position >= rope.dynamic_original_context) {
    append(dynamic_inv_freq(rope, position), rope, position, cosines, sines);
  } else {
    append(rope.inv_freq, rope, position, cosines, sines);
  }
}

void append_turn(const RopeSpec& rope, int64_t from, int64_t to, std::vector<float>& cosines,
                 std::vector<float>& sines) {
  for (const float frequency : rope.inv_freq) {
    const double angle = angle_of(to, frequency) - angle_of(from, frequency);
    cosines.push_back(static_cast<float>(std::cos(angle)));
    sines.push_back(static_cast<float>(std::sin(angle)));
  }
}

}  // namespace onward
