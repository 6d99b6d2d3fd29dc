// Logits processors that look at single tokens: they change scores of the whole vocabulary in
// place, before greedy choice or sampling. A finite score stays finite under any bias or penalty;
// only a ban makes it -infinity, and nothing brings a banned token back.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "backend/row_sampling.h"

namespace onward {

// scores[id] += bias; a bias of -infinity bans.
void add_bias(float* scores, const std::map<int32_t, double>& bias);

// The penalty as it is applied: of float32, and above 0.
double repetition_factor(double penalty);

// Keskar et al. 2019 (CTRL), as Hugging Face applies it: once per distinct id of prompt and output,
// s < 0 ? s * penalty : s / penalty. `seen` has no id twice.
void apply_repetition_penalty(float* scores, const std::vector<SeenToken>& seen, double penalty);

// OpenAI's: s - frequency * count - presence, for every id of the output. The prompt is free.
void apply_count_penalties(float* scores, const std::vector<SeenToken>& seen, double presence,
                           double frequency);

// scores[id] = -infinity for every id of `masked`.
void mask_tokens(float* scores, const std::vector<int32_t>& masked);

// scores[id] = -infinity for every id that is not in `allowed`.
void mask_all_but(float* scores, int64_t vocab_size, const std::vector<int32_t>& allowed);

}  // namespace onward
