// Logits in, one token out. Everything random comes from (seed, stream, step), so a token
// depends on these and on the sequence, and not on the batch.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sampling/filters.h"
#include "sampling/mirostat.h"
#include "sampling/processors.h"
#include "sampling/sampling_options.h"

namespace onward {

class Sampler {
 public:
  Sampler(const SamplingOptions& options, int64_t vocab_size, const std::vector<int32_t>& prompt);

  // Picks the token that follows `tokens` (the prompt, then what this sampler has picked) and
  // remembers it. `logits` (vocab_size) are changed. `masked` ids cannot be chosen. NumericsError
  // when a logit is not finite, InvalidArgument when every token is masked: then nothing has moved.
  int32_t sample(float* logits, const std::vector<int32_t>& tokens,
                 const std::vector<int32_t>& masked);

 private:
  void process(float* scores, const std::vector<int32_t>& tokens,
               const std::vector<int32_t>& masked) const;
  int32_t draw_token(const float* scores, float largest, uint64_t step);
  void begin(Candidates& candidates, const float* scores, float largest) const;
  void filter(Candidates& candidates, uint64_t step) const;
  bool has_penalties() const;
  void see(int32_t token, int32_t output_count);

  SamplingOptions options_;
  int64_t vocab_size_;
  size_t prompt_size_;
  std::vector<SeenToken> seen_;  // in order of id; empty where nothing needs it
  std::optional<Mirostat> mirostat_;
};

}  // namespace onward
