// How one request turns logits into tokens. Validated once, when the request is submitted.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "sampling/rules.h"

namespace onward {

enum class ChainOrder : uint8_t { hf, vllm, llama_cpp };

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
  std::vector<int32_t> stop_token_ids;
  int64_t min_new_tokens = 0;                   // before so many no stop token can be chosen
  std::shared_ptr<ScoreRule> logits_processor;  // null: none
  std::shared_ptr<ScoreRule> grammar;           // null: none

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
  ChainOrder order = ChainOrder::hf;
  uint64_t seed = 0;
  uint64_t stream = 0;  // tells equal requests of one call apart

  int64_t logprobs = -1;  // log-probabilities of the chosen token and so many others; -1: none

  // InvalidArgument naming the option, what was found and what was expected.
  void validate(int64_t vocab_size) const;
};

}  // namespace onward
