#include "sampling/sampler.h"

#include <limits>

#include "base/philox.h"
#include "onward/error.h"
#include "sampling/filters.h"
#include "sampling/log_probability.h"
#include "sampling/processors.h"

namespace onward {
namespace {

// The first of the largest, as torch.argmax; -1 when all are -infinity.
int64_t argmax(const float* scores, int64_t vocab_size) {
  int64_t best = -1;
  float largest = -std::numeric_limits<float>::infinity();
  for (int64_t id = 0; id < vocab_size; ++id) {
    if (scores[id] > largest) {
      largest = scores[id];
      best = id;
    }
  }
  return best;
}

}  // namespace

Sampler::Sampler(const SamplingOptions& options, int64_t vocab_size)
    : options_(options), vocab_size_(vocab_size) {
  options_.validate();
  if (options_.repetition_penalty != 1.0) seen_.resize(static_cast<size_t>(vocab_size));
}

void Sampler::observe(int32_t token) {
  if (!seen_.empty()) seen_[static_cast<size_t>(token)] = 1;
}

int32_t Sampler::sample(float* logits, int64_t step, const std::vector<int32_t>& masked) const {
  require_finite(logits, vocab_size_);
  apply_repetition_penalty(logits, seen_, options_.repetition_penalty);
  mask_tokens(logits, masked);
  const int64_t best = argmax(logits, vocab_size_);
  if (best < 0) {
    throw InvalidArgument("sampling: every token is masked, expected at least one that may follow");
  }
  if (options_.temperature == 0) return static_cast<int32_t>(best);

  Candidates candidates =
      scaled_candidates(logits, vocab_size_, logits[best], options_.temperature);
  keep_top_k(candidates, options_.top_k);
  keep_top_p(candidates, options_.top_p);
  keep_min_p(candidates, options_.min_p);
  return draw(candidates,
              philox_uniform(options_.seed, options_.stream, static_cast<uint64_t>(step)));
}

}  // namespace onward
