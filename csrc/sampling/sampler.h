// Turns logits into one token, by the chain of stages that the options turn on. All random numbers
// are functions of (seed, stream, step), so a token depends on these and on the sequence, not on
// the batch. A copy continues from the state of the original.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backend/row_sampling.h"
#include "sampling/chain.h"
#include "sampling/filters.h"
#include "sampling/logprobs.h"
#include "sampling/mirostat.h"
#include "sampling/processors.h"
#include "sampling/sampling_options.h"

namespace onward {

struct Choice {
  int32_t token = -1;
  std::optional<TokenLogprobs> logprobs;  // if requested
};

class Sampler {
 public:
  // lane: the index of the sequence in its request. Each lane has its own random stream.
  Sampler(std::shared_ptr<const SamplingOptions> options, int64_t vocab_size,
          const std::vector<int32_t>& prompt, uint64_t lane = 0);

  // Chooses the token that follows `tokens` (the prompt, then the remembered tokens). Changes
  // `logits` (vocab_size). Throws NumericsError if a logit is not finite, InvalidArgument if every
  // token is masked, and the exceptions of rules; the sampler is unchanged then.
  Choice sample(float* logits, const std::vector<int32_t>& tokens);

  // What a device needs to make the choice of `sample`. Nothing if no device can: it lacks a stage
  // of the chain, or the log-probabilities of other tokens are requested.
  std::optional<RowSampling> on_device(const std::vector<int32_t>& tokens) const;
  // The choice of a device that found a token, in the form of `sample`.
  Choice take(const RowChoice& found);

  // The two halves of sample, for beam search, which chooses in another way.
  void process(float* scores, const std::vector<int32_t>& tokens) const;
  // The candidates that the stages of the draw leave. Valid until the calling thread's next call.
  const Candidates& candidates(const float* scores, float largest, uint64_t step) const;
  void remember(int32_t token);

  const SamplingOptions& options() const { return *options_; }
  uint64_t stream() const { return options_->stream + lane_; }
  // The same sampler without the caller's rules. It guesses the choice of the original.
  Sampler without_rules() const;

 private:
  uint64_t step(const std::vector<int32_t>& tokens) const { return tokens.size() - prompt_size_; }

  std::shared_ptr<const SamplingOptions> options_;
  Chain chain_;
  int64_t vocab_size_;
  uint64_t lane_;
  size_t prompt_size_;
  bool counts_tokens_;           // some stage of the chain does
  std::vector<SeenToken> seen_;  // by id; empty where no stage counts tokens
  std::optional<Mirostat> mirostat_;
};

}  // namespace onward
