#include "sampling/sampler.h"

#include <algorithm>
#include <set>

#include "base/philox.h"
#include "onward/error.h"
#include "sampling/dynamic_temperature.h"
#include "sampling/filters.h"
#include "sampling/log_probability.h"
#include "sampling/repetition.h"

namespace onward {
namespace {

// Rows as long as the vocabulary that a step needs: one set for all sequences of a thread.
Candidates& thread_candidates() {
  thread_local Candidates candidates;
  return candidates;
}

}  // namespace

Sampler::Sampler(const SamplingOptions& options, int64_t vocab_size,
                 const std::vector<int32_t>& prompt)
    : options_(options), vocab_size_(vocab_size), prompt_size_(prompt.size()) {
  options_.validate(vocab_size);
  if (has_penalties()) {
    for (const int32_t token : std::set<int32_t>(prompt.begin(), prompt.end())) see(token, 0);
  }
  if (options_.mirostat == 2) mirostat_.emplace(options_.mirostat_tau, options_.mirostat_eta);
}

int32_t Sampler::sample(float* logits, const std::vector<int32_t>& tokens,
                        const std::vector<int32_t>& masked) {
  require_finite(logits, vocab_size_);
  process(logits, tokens, masked);
  const int64_t best = first_largest(logits, vocab_size_);
  if (best < 0) {
    throw InvalidArgument("sampling: every token is masked, expected at least one that may follow");
  }
  const int32_t token = options_.temperature == 0
                            ? static_cast<int32_t>(best)
                            : draw_token(logits, logits[best], tokens.size() - prompt_size_);
  if (has_penalties()) see(token, 1);
  return token;
}

void Sampler::process(float* scores, const std::vector<int32_t>& tokens,
                      const std::vector<int32_t>& masked) const {
  add_bias(scores, options_.logit_bias);
  apply_repetition_penalty(scores, seen_, options_.repetition_penalty);
  apply_count_penalties(scores, seen_, options_.presence_penalty, options_.frequency_penalty);
  apply_dry(scores, tokens, options_);
  ban_repeated_ngrams(scores, tokens, options_.no_repeat_ngram_size);
  ban_bad_words(scores, tokens, options_.bad_words_ids);
  mask_tokens(scores, masked);
  if (options_.allowed_token_ids) mask_all_but(scores, vocab_size_, *options_.allowed_token_ids);
  mask_tokens(scores, options_.suppress_tokens);
}

int32_t Sampler::draw_token(const float* scores, float largest, uint64_t step) {
  Candidates& candidates = thread_candidates();
  begin(candidates, scores, largest);
  if (mirostat_) {
    mirostat_->keep(candidates);
  } else {
    filter(candidates, step);
  }
  const int32_t token = draw(candidates, philox_uniform(options_.seed, options_.stream, step));
  if (mirostat_) mirostat_->observe(candidates, token);
  return token;
}

void Sampler::begin(Candidates& candidates, const float* scores, float largest) const {
  if (options_.dynatemp_range == 0) {
    candidates.begin(scores, vocab_size_, largest, options_.temperature);
    return;
  }
  candidates.begin(scores, vocab_size_, largest);
  scale(candidates, dynamic_temperature(candidates, options_.temperature, options_.dynatemp_range,
                                        options_.dynatemp_exponent));
}

void Sampler::filter(Candidates& candidates, uint64_t step) const {
  keep_top_n_sigma(candidates, options_.top_n_sigma);
  keep_top_k(candidates, options_.top_k);
  keep_top_p(candidates, options_.top_p);
  keep_min_p(candidates, options_.min_p);
  keep_typical(candidates, options_.typical_p);
  keep_probable(candidates, options_.epsilon_cutoff);
  keep_eta(candidates, options_.eta_cutoff);
  // A number of its own, so that the draw's is the same with XTC and without.
  if (options_.xtc_probability > 0 &&
      philox_uniform(options_.seed, options_.stream, step, 1) < options_.xtc_probability) {
    drop_top_choices(candidates, options_.xtc_threshold);
  }
}

bool Sampler::has_penalties() const {
  return options_.repetition_penalty != 1 || options_.presence_penalty != 0 ||
         options_.frequency_penalty != 0;
}

void Sampler::see(int32_t token, int32_t output_count) {
  const auto before = [](const SeenToken& seen, int32_t id) { return seen.id < id; };
  const auto place = std::lower_bound(seen_.begin(), seen_.end(), token, before);
  if (place != seen_.end() && place->id == token) {
    place->output_count += output_count;
  } else {
    seen_.insert(place, {token, output_count});
  }
}

}  // namespace onward
