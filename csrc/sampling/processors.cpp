#include "sampling/processors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"
#include "sampling/repetition.h"
#include "sampling/scores.h"
#include "sampling/stage.h"

namespace onward {

void add_bias(float* scores, const std::map<int32_t, double>& bias) {
  for (const auto& [id, value] : bias) {
    if (value == -std::numeric_limits<double>::infinity()) {
      scores[id] = kBanned;
    } else {
      change_score(scores[id], double{scores[id]} + value);
    }
  }
}

double repetition_factor(double penalty) {
  return std::max(static_cast<float>(penalty), std::numeric_limits<float>::min());
}

void apply_repetition_penalty(float* scores, const std::vector<SeenToken>& seen, double penalty) {
  if (penalty == 1.0) return;
  const double p = repetition_factor(penalty);
  for (const SeenToken& token : seen) {
    const double score = scores[token.id];
    change_score(scores[token.id], score < 0 ? score * p : score / p);
  }
}

void apply_count_penalties(float* scores, const std::vector<SeenToken>& seen, double presence,
                           double frequency) {
  if (presence == 0.0 && frequency == 0.0) return;
  for (const SeenToken& token : seen) {
    if (token.output_count == 0) continue;
    const double penalty = frequency * static_cast<double>(token.output_count) + presence;
    change_score(scores[token.id], double{scores[token.id]} - penalty);
  }
}

void mask_tokens(float* scores, const std::vector<int32_t>& masked) {
  for (const int32_t id : masked) scores[id] = kBanned;
}

void mask_all_but(float* scores, int64_t vocab_size, const std::vector<int32_t>& allowed) {
  std::vector<float> kept;
  kept.reserve(allowed.size());
  for (const int32_t id : allowed) kept.push_back(scores[id]);
  std::fill(scores, scores + vocab_size, kBanned);
  for (size_t i = 0; i < allowed.size(); ++i) scores[allowed[i]] = kept[i];
}

namespace {

void call_rule(const ScoreContext& c, float* scores, ScoreRule& rule) {
  rule.change(c.tokens, scores, c.vocab_size);
  for (int64_t id = 0; id < c.vocab_size; ++id) {
    if (std::isfinite(scores[id]) || scores[id] == kBanned) continue;
    throw InvalidArgument("logits_processor: left the score " + std::to_string(scores[id]) +
                          " for token " + std::to_string(id) +
                          ", expected a finite number, or -inf to ban the token");
  }
}

using S = SamplingOptions;
using Context = ScoreContext;

// Rows in the order of Hugging Face's GenerationMixin (transformers 5). Stages that it does not
// have stand where the others need them: count penalties after the repetition penalty, and the
// grammar last, so that no stage can undo it. vLLM's V1 sampler applies bans and the bias before
// the penalties.
constexpr ScoreStage kStages[] = {
    {.options = {{"logit_bias",
                  &S::logit_bias,
                  "token id -> number added to its logit before every other stage; -inf bans",
                  0,
                  {},
                  "+inf and NaN are errors"}},
     .places = {.hf = 10, .vllm = 50, .llama_cpp = 10},
     .device_place = 1,
     .apply = [](const Context& c, float* scores) { add_bias(scores, c.options.logit_bias); }},

    {.options = {{"repetition_penalty", &S::repetition_penalty,
                  "divides positive and multiplies negative logits of tokens in prompt and output; "
                  "1 is off",
                  1, above(0),
                  "Applied once to the score s of each distinct token: s < 0 ? s · p : s / p"}},
     .places = {.hf = 20, .vllm = 70, .llama_cpp = 20},
     .device_place = 2,
     .counts_tokens = true,
     .apply =
         [](const Context& c, float* scores) {
           apply_repetition_penalty(scores, c.seen, c.options.repetition_penalty);
         }},

    {.options = {{"presence_penalty",
                  &S::presence_penalty,
                  "subtracted from the logit of every token that is in the output; 0 is off",
                  0,
                  {},
                  "Tokens that are only in the prompt keep their logits"}},
     .places = {.hf = 30, .vllm = 90, .llama_cpp = 30},
     .device_place = 3,
     .counts_tokens = true,
     .apply =
         [](const Context& c, float* scores) {
           apply_count_penalties(scores, c.seen, c.options.presence_penalty, 0);
         }},

    {.options = {{"frequency_penalty", &S::frequency_penalty,
                  "subtracted from the logit of a token for each time it is in the output; 0 is "
                  "off"}},
     .places = {.hf = 40, .vllm = 80, .llama_cpp = 40},
     .device_place = 4,
     .counts_tokens = true,
     .apply =
         [](const Context& c, float* scores) {
           apply_count_penalties(scores, c.seen, 0, c.options.frequency_penalty);
         }},

    {.options = {{"dry_multiplier", &S::dry_multiplier,
                  "DRY: penalty of a token that would prolong a repetition; 0 is off", 0,
                  at_least(0),
                  "A token that would extend a repetition of n tokens loses multiplier · "
                  "base ^ (n - allowed length)"},
                 {"dry_base", &S::dry_base,
                  "factor by which each further token of a repetition raises DRY's penalty", 1.75,
                  at_least(1)},
                 {"dry_allowed_length", &S::dry_allowed_length,
                  "shortest repetition that DRY penalises", 2, at_least(1)},
                 {"dry_sequence_breakers",
                  &S::dry_sequence_breakers,
                  "token ids at which DRY's repetitions end",
                  0,
                  {},
                  "DRY never penalises these tokens"}},
     .places = {.hf = 50, .vllm = 100, .llama_cpp = 50},
     .apply = [](const Context& c, float* scores) { apply_dry(scores, c.tokens, c.options); }},

    {.options = {{"no_repeat_ngram_size", &S::no_repeat_ngram_size,
                  "forbid repeating any n-gram of this size; 0 is off", 0, at_least(0),
                  "N-grams of the prompt count, too"}},
     .places = {.hf = 60, .vllm = 110, .llama_cpp = 60},
     .apply =
         [](const Context& c, float* scores) {
           ban_repeated_ngrams(scores, c.tokens, c.options.no_repeat_ngram_size);
         }},

    {.options = {{"bad_words_ids",
                  &S::bad_words_ids,
                  "lists of token ids, none of which may appear in the output",
                  0,
                  {},
                  "The last id of a list is banned if the text so far ends with the "
                  "ids before it"}},
     .places = {.hf = 70, .vllm = 20, .llama_cpp = 70},
     .apply = [](const Context& c,
                 float* scores) { ban_bad_words(scores, c.tokens, c.options.bad_words_ids); }},

    {.options = {{"min_new_tokens", &S::min_new_tokens,
                  "number of tokens before which no stop token can be chosen; at most "
                  "max_new_tokens",
                  0, at_least(0)}},
     .places = {.hf = 80, .vllm = 40, .llama_cpp = 80},
     .device_place = kAnywhere,
     .apply =
         [](const Context& c, float* scores) {
           if (c.step < c.options.min_new_tokens) mask_tokens(scores, c.options.stop_token_ids);
         }},

    {.options = {{"allowed_token_ids",
                  &S::allowed_token_ids,
                  "the only tokens that can be chosen",
                  0,
                  {},
                  "A stop token must be listed, too; an empty list is an "
                  "error"}},
     .places = {.hf = 90, .vllm = 10, .llama_cpp = 90},
     .apply =
         [](const Context& c, float* scores) {
           mask_all_but(scores, c.vocab_size, *c.options.allowed_token_ids);
         }},

    {.options = {{"suppress_tokens", &S::suppress_tokens, "tokens that cannot be chosen"}},
     .places = {.hf = 100, .vllm = 30, .llama_cpp = 100},
     .device_place = kAnywhere,
     .apply = [](const Context& c,
                 float* scores) { mask_tokens(scores, c.options.suppress_tokens); }},

    {.options = {{"logits_processor", &S::logits_processor}},
     .places = {.hf = 110, .vllm = 60, .llama_cpp = 110},
     .apply = [](const Context& c,
                 float* scores) { call_rule(c, scores, *c.options.logits_processor); }},

    {.options = {{"grammar", &S::grammar}},
     .places = {.hf = 120, .vllm = 120, .llama_cpp = 120},
     .apply = [](const Context& c, float* scores) { call_rule(c, scores, *c.options.grammar); }},
};

}  // namespace

std::span<const ScoreStage> score_stages() { return kStages; }

}  // namespace onward
