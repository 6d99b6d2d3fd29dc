#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "base/philox.h"
#include "sampling/dynamic_temperature.h"
#include "sampling/log_probability.h"
#include "sampling/repetition.h"
#include "sampling/scores.h"

namespace onward {
namespace {

bool counts_tokens(const SamplingOptions& options) {
  return options.repetition_penalty != 1 || options.presence_penalty != 0 ||
         options.frequency_penalty != 0;
}

std::vector<SeenToken> distinct(std::vector<int32_t> tokens) {
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  std::vector<SeenToken> seen;
  for (const int32_t token : tokens) seen.push_back({token, 0});
  return seen;
}

}  // namespace

Sampler::Sampler(std::shared_ptr<const SamplingOptions> options, int64_t vocab_size,
                 const std::vector<int32_t>& prompt, uint64_t lane)
    : options_(std::move(options)),
      chain_(chain_of(*options_)),
      vocab_size_(vocab_size),
      lane_(lane),
      prompt_size_(prompt.size()) {
  options_->validate(vocab_size);
  if (counts_tokens(*options_)) seen_ = distinct(prompt);
  if (options_->mirostat == 2) mirostat_.emplace(options_->mirostat_tau, options_->mirostat_eta);
}

Sampler Sampler::without_rules() const {
  Sampler twin = *this;
  const auto is_rule = [](Stage stage) {
    return stage == Stage::logits_processor || stage == Stage::grammar;
  };
  auto& processors = twin.chain_.processors;
  processors.erase(std::remove_if(processors.begin(), processors.end(), is_rule), processors.end());
  return twin;
}

Choice Sampler::sample(float* logits, const std::vector<int32_t>& tokens) {
  require_finite(logits, vocab_size_);
  const int64_t wanted = options_->logprobs;
  thread_local std::vector<float> raw;  // what the model said, where it is asked for; a long row
  double raw_total = 0;
  std::vector<ScoredToken> raw_top;
  if (wanted >= 0) {
    raw.assign(logits, logits + vocab_size_);
    raw_total = log_sum_exp(logits, vocab_size_);
    raw_top = best_tokens(logits, vocab_size_, wanted);
  }
  process(logits, tokens);
  const int64_t best = first_largest(logits, vocab_size_);
  if (best < 0) {
    throw InvalidArgument("sampling: every token is masked, expected at least one that may follow");
  }

  Choice choice;
  if (chain_.draw.empty()) {
    choice.token = static_cast<int32_t>(best);
    if (wanted >= 0) {
      log_softmax(logits, vocab_size_);
      choice.logprobs = {
          choice.token, 0, logits[best], {}, best_tokens(logits, vocab_size_, wanted)};
    }
  } else {
    const Candidates& left = candidates(logits, logits[best], step(tokens));
    choice.token = draw(left, philox_uniform(options_->seed, stream(), step(tokens)));
    if (mirostat_) mirostat_->observe(left, choice.token);
    if (wanted >= 0) {
      choice.logprobs = {choice.token,
                         0,
                         log_probability_of(left, choice.token),
                         {},
                         best_candidates(left, wanted)};
    }
  }
  if (wanted >= 0) {
    const auto logprob = [&](float logit) { return static_cast<float>(logit - raw_total); };
    choice.logprobs->raw = logprob(raw[static_cast<size_t>(choice.token)]);
    for (ScoredToken& token : raw_top) token.score = logprob(token.score);
    choice.logprobs->raw_top = std::move(raw_top);
  }
  remember(choice.token);
  return choice;
}

void Sampler::process(float* scores, const std::vector<int32_t>& tokens) const {
  for (const Stage stage : chain_.processors) apply(stage, scores, tokens);
}

void Sampler::apply(Stage stage, float* scores, const std::vector<int32_t>& tokens) const {
  const SamplingOptions& o = *options_;
  switch (stage) {
    case Stage::logit_bias:
      return add_bias(scores, o.logit_bias);
    case Stage::repetition_penalty:
      return apply_repetition_penalty(scores, seen_, o.repetition_penalty);
    case Stage::presence_penalty:
      return apply_count_penalties(scores, seen_, o.presence_penalty, 0);
    case Stage::frequency_penalty:
      return apply_count_penalties(scores, seen_, 0, o.frequency_penalty);
    case Stage::dry:
      return apply_dry(scores, tokens, o);
    case Stage::no_repeat_ngram:
      return ban_repeated_ngrams(scores, tokens, o.no_repeat_ngram_size);
    case Stage::bad_words:
      return ban_bad_words(scores, tokens, o.bad_words_ids);
    case Stage::min_new_tokens:
      if (static_cast<int64_t>(step(tokens)) < o.min_new_tokens) {
        mask_tokens(scores, o.stop_token_ids);
      }
      return;
    case Stage::allowed_tokens:
      return mask_all_but(scores, vocab_size_, *o.allowed_token_ids);
    case Stage::suppress_tokens:
      return mask_tokens(scores, o.suppress_tokens);
    case Stage::logits_processor:
      return call(*o.logits_processor, scores, tokens);
    case Stage::grammar:
      return call(*o.grammar, scores, tokens);
    default:
      return;  // of the draw
  }
}

void Sampler::call(ScoreRule& rule, float* scores, const std::vector<int32_t>& tokens) const {
  rule.change(tokens, scores, vocab_size_);
  for (int64_t id = 0; id < vocab_size_; ++id) {
    if (std::isfinite(scores[id]) || scores[id] == kBanned) continue;
    throw InvalidArgument("logits_processor: left the score " + std::to_string(scores[id]) +
                          " for token " + std::to_string(id) +
                          ", expected a finite number, or -inf to ban the token");
  }
}

const Candidates& Sampler::candidates(const float* scores, float largest, uint64_t step) const {
  thread_local Candidates left;  // its rows are long: one set for all sequences of a thread
  auto stage = chain_.draw.begin();
  if (*stage == Stage::temperature && options_->dynatemp_range == 0) {
    left.begin(scores, vocab_size_, largest, options_->temperature);
    ++stage;
  } else {
    left.begin(scores, vocab_size_, largest);
  }
  for (; stage != chain_.draw.end(); ++stage) apply(*stage, left, step);
  return left;
}

void Sampler::apply(Stage stage, Candidates& left, uint64_t step) const {
  const SamplingOptions& o = *options_;
  switch (stage) {
    case Stage::temperature:
      return scale(left, o.dynatemp_range > 0
                             ? dynamic_temperature(left, o.temperature, o.dynatemp_range,
                                                   o.dynatemp_exponent)
                             : o.temperature);
    case Stage::top_n_sigma:
      return keep_top_n_sigma(left, o.top_n_sigma);
    case Stage::top_k:
      return keep_top_k(left, o.top_k);
    case Stage::top_p:
      return keep_top_p(left, o.top_p);
    case Stage::min_p:
      return keep_min_p(left, o.min_p);
    case Stage::typical_p:
      return keep_typical(left, o.typical_p);
    case Stage::epsilon_cutoff:
      return keep_probable(left, o.epsilon_cutoff);
    case Stage::eta_cutoff:
      return keep_eta(left, o.eta_cutoff);
    case Stage::xtc:
      // A number of its own, so that the draw's is the same with XTC and without.
      if (philox_uniform(o.seed, stream(), step, 1) < o.xtc_probability) {
        drop_top_choices(left, o.xtc_threshold);
      }
      return;
    case Stage::mirostat:
      return mirostat_->keep(left);
    default:
      return;  // of the whole vocabulary
  }
}

void Sampler::remember(int32_t token) {
  if (!counts_tokens(*options_)) return;
  const auto place =
      std::lower_bound(seen_.begin(), seen_.end(), token,
                       [](const SeenToken& seen, int32_t id) { return seen.id < id; });
  if (place != seen_.end() && place->id == token) {
    ++place->output_count;
  } else {
    seen_.insert(place, {token, 1});
  }
}

}  // namespace onward
