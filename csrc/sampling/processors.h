// Logits processors: they change scores of the whole vocabulary in place, before greedy choice or
// sampling. In Hugging Face's order: repetition penalty, then the minimum length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace onward {

// Keskar et al. 2019 (CTRL), as Hugging Face applies it: once per distinct id of prompt and output,
// s < 0 ? s * penalty : s / penalty. `seen` has one entry per vocabulary id.
void apply_repetition_penalty(float* scores, const std::vector<uint8_t>& seen, double penalty);

// scores[id] = -infinity for every id of `masked`.
void mask_tokens(float* scores, const std::vector<int32_t>& masked);

}  // namespace onward
