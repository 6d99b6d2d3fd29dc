// Logits processors that treat each token by itself. They change the scores of the whole vocabulary
// in place, before greedy choice or sampling. A finite score stays finite under any bias or
// penalty. Only a ban makes it -infinity, and no processor undoes a ban.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "backend/row_sampling.h"

namespace onward {

// scores[id] += bias; a bias of -infinity bans.
void add_bias(float* scores, const std::map<int32_t, double>& bias);

// The penalty that is applied: in float32, and above 0.
double repetition_factor(double penalty);

// Keskar et al. 2019 (CTRL), as in Hugging Face: once per distinct id of prompt and output,
// s < 0 ? s * penalty : s / penalty. `seen` has each id once.
void apply_repetition_penalty(float* scores, const std::vector<SeenToken>& seen, double penalty);

// As in OpenAI's API: s - frequency * count - presence for every id of the output.
void apply_count_penalties(float* scores, const std::vector<SeenToken>& seen, double presence,
                           double frequency);

// scores[id] = -infinity for every id of `masked`.
void mask_tokens(float* scores, const std::vector<int32_t>& masked);

// scores[id] = -infinity for every id that is not in `allowed`.
void mask_all_but(float* scores, int64_t vocab_size, const std::vector<int32_t>& allowed);

}  // namespace onward
