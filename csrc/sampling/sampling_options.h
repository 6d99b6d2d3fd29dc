// How one request turns logits into tokens. Validated once, when the request is submitted.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace onward {

struct SamplingOptions {
  // Scores of the whole vocabulary, greedy or not.
  std::map<int32_t, double> logit_bias;
  double repetition_penalty = 1;  // 1: off
  double presence_penalty = 0;
  double frequency_penalty = 0;
  double dry_multiplier = 0;  // 0: off
  double dry_base = 1.75;
  int64_t dry_allowed_length = 2;
  std::vector<int32_t> dry_sequence_breakers;
  int64_t no_repeat_ngram_size = 0;  // 0: off
  std::vector<std::vector<int32_t>> bad_words_ids;
  std::optional<std::vector<int32_t>> allowed_token_ids;
  std::vector<int32_t> suppress_tokens;

  // The draw.
  double temperature = 0;     // 0: greedy
  double dynatemp_range = 0;  // 0: off
  double dynatemp_exponent = 1;
  double top_n_sigma = 0;      // 0: off
  int64_t top_k = 0;           // 0: off
  double top_p = 1;            // 1: off
  double min_p = 0;            // 0: off
  double typical_p = 1;        // 1: off
  double epsilon_cutoff = 0;   // 0: off
  double eta_cutoff = 0;       // 0: off
  double xtc_probability = 0;  // 0: off
  double xtc_threshold = 0.1;
  int64_t mirostat = 0;  // 0: off; 2: in place of the filters
  double mirostat_tau = 5;
  double mirostat_eta = 0.1;
  uint64_t seed = 0;
  uint64_t stream = 0;  // tells equal requests of one call apart

  // InvalidArgument naming the option, what was found and what was expected.
  void validate(int64_t vocab_size) const;
};

}  // namespace onward
