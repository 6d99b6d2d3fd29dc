// Logits processors that compare runs of tokens: n-grams, bad words, DRY. `tokens`: prompt and
// output.
#pragma once

#include <cstdint>
#include <vector>

#include "sampling/sampling_options.h"

namespace onward {

// As in Hugging Face: bans every token that would complete an n-gram that is in `tokens`. size 0 is
// off; size 1 bans every token of `tokens`.
void ban_repeated_ngrams(float* scores, const std::vector<int32_t>& tokens, int64_t size);

// Bans the last id of each list when the ids before it are the last of `tokens`.
void ban_bad_words(float* scores, const std::vector<int32_t>& tokens,
                   const std::vector<std::vector<int32_t>>& bad_words_ids);

// DRY, "don't repeat yourself": a token that would extend a repetition of n >= dry_allowed_length
// tokens loses dry_multiplier * dry_base ^ (n - dry_allowed_length). A breaker ends repetitions and
// is never penalised.
void apply_dry(float* scores, const std::vector<int32_t>& tokens, const SamplingOptions& options);

}  // namespace onward
