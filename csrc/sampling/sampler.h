// Logits in, one token out. Everything random comes from (seed, stream, step), so a token does not
// depend on the batch, and a step can be repeated.
#pragma once

#include <cstdint>
#include <vector>

#include "sampling/sampling_options.h"

namespace onward {

class Sampler {
 public:
  Sampler(const SamplingOptions& options, int64_t vocab_size);

  // Tells the sampler of a token of the prompt or the output (the repetition penalty sees both).
  void observe(int32_t token);

  // Picks the token of output position `step` (0 for the first). `logits` (vocab_size) are changed.
  // `masked` ids cannot be chosen. NumericsError when a logit is not finite, InvalidArgument when
  // every token is masked.
  int32_t sample(float* logits, int64_t step, const std::vector<int32_t>& masked) const;

 private:
  SamplingOptions options_;
  int64_t vocab_size_;
  std::vector<uint8_t> seen_;  // (vocab_size), empty where no penalty needs it
};

}  // namespace onward
