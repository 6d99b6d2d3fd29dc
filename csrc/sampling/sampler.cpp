#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "base/philox.h"
#include "sampling/log_probability.h"

namespace onward {
namespace {

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
      prompt_size_(prompt.size()),
      counts_tokens_(std::any_of(chain_.processors.begin(), chain_.processors.end(),
                                 [](const ScoreStage* stage) { return stage->counts_tokens; })) {
  options_->validate(vocab_size);
  if (counts_tokens_) seen_ = distinct(prompt);
  if (options_->mirostat == 2) mirostat_.emplace(options_->mirostat_tau, options_->mirostat_eta);
}

Sampler Sampler::without_rules() const {
  Sampler twin = *this;
  std::erase_if(twin.chain_.processors, [](const ScoreStage* stage) { return stage->is_rule(); });
  return twin;
}

Choice Sampler::sample(float* logits, const std::vector<int32_t>& tokens) {
  require_finite(logits, vocab_size_);
  const int64_t wanted = options_->logprobs;
  thread_local std::vector<float> raw;  // the logits of the model, if requested
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
  const ScoreContext context = {*options_, tokens, seen_, vocab_size_,
                                static_cast<int64_t>(step(tokens))};
  for (const ScoreStage* stage : chain_.processors) stage->apply(context, scores);
}

const Candidates& Sampler::candidates(const float* scores, float largest, uint64_t step) const {
  thread_local Candidates left;  // one set of long rows for all sequences of a thread
  const DrawContext context = {*options_, stream(), step, mirostat_ ? &*mirostat_ : nullptr};
  auto stage = chain_.draw.begin();
  if (*stage == &draw_stages().front() && options_->dynatemp_range == 0) {
    // A temperature that comes first is part of the pass that reads the row.
    left.begin(scores, vocab_size_, largest, options_->temperature);
    ++stage;
  } else {
    left.begin(scores, vocab_size_, largest);
  }
  for (; stage != chain_.draw.end(); ++stage) (*stage)->apply(context, left);
  return left;
}

void Sampler::remember(int32_t token) {
  if (!counts_tokens_) return;
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
