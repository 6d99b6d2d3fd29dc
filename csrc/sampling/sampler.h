// Logits in, one token out, by the chain that the options ask for. Everything random comes from
// (seed, stream, step), so a token depends on these and on the sequence, and not on the batch. A
// copy goes on from where the original stands.
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
  std::optional<TokenLogprobs> logprobs;  // where they are asked for
};

class Sampler {
 public:
  // lane: which of the sequences of one request; they draw from streams of their own.
  Sampler(std::shared_ptr<const SamplingOptions> options, int64_t vocab_size,
          const std::vector<int32_t>& prompt, uint64_t lane = 0);

  // Picks the token that follows `tokens` (the prompt, then what was remembered). `logits`
  // (vocab_size) are changed. NumericsError when a logit is not finite, InvalidArgument when every
  // token is masked, and whatever a rule throws: then nothing has moved.
  Choice sample(float* logits, const std::vector<int32_t>& tokens);

  // How a device does the same as `sample`; nothing where no device does, because of a stage of the
  // chain or of what is to be told of the choice.
  std::optional<RowSampling> on_device(const std::vector<int32_t>& tokens) const;
  // What the device found, as `sample` gives it. It has found a token.
  Choice take(const RowChoice& found);

  // The two halves of sample, for who chooses among the scores in another way: beam search.
  void process(float* scores, const std::vector<int32_t>& tokens) const;
  // What the filters leave of the scores. Belongs to the calling thread until its next call.
  const Candidates& candidates(const float* scores, float largest, uint64_t step) const;
  void remember(int32_t token);

  const SamplingOptions& options() const { return *options_; }
  uint64_t stream() const { return options_->stream + lane_; }
  // The same sampler but for the caller's own rules: it guesses what the other would choose.
  Sampler without_rules() const;

 private:
  uint64_t step(const std::vector<int32_t>& tokens) const { return tokens.size() - prompt_size_; }
  void apply(Stage stage, float* scores, const std::vector<int32_t>& tokens) const;
  void apply(Stage stage, Candidates& candidates, uint64_t step) const;
  void call(ScoreRule& rule, float* scores, const std::vector<int32_t>& tokens) const;

  std::shared_ptr<const SamplingOptions> options_;
  Chain chain_;
  int64_t vocab_size_;
  uint64_t lane_;
  size_t prompt_size_;
  std::vector<SeenToken> seen_;  // by id; empty where nothing needs it
  std::optional<Mirostat> mirostat_;
};

}  // namespace onward
