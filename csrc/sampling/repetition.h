// Processors that look at runs of tokens: n-grams, bad words, DRY. `tokens` is prompt and output.
#pragma once

#include <cstdint>
#include <vector>

#include "sampling/sampling_options.h"

namespace onward {

// Hugging Face's rule: bans every token that would complete an n-gram that `tokens` has already.
// size 0 is off; 1 bans every token that has been.
void ban_repeated_ngrams(float* scores, const std::vector<int32_t>& tokens, int64_t size);

// Bans the last id of each list when the ids before it are the last of `tokens`.
void ban_bad_words(float* scores, const std::vector<int32_t>& tokens,
                   const std::vector<std::vector<int32_t>>& bad_words_ids);

// "Don't repeat yourself": a token that would prolong a repetition of n >= dry_allowed_length
// tokens loses dry_multiplier * dry_base ^ (n - dry_allowed_length). No repetition reaches over a
// breaker, and a breaker is never penalised.
void apply_dry(float* scores, const std::vector<int32_t>& tokens, const SamplingOptions& options);

}  // namespace onward
