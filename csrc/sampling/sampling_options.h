// How one request turns logits into tokens. Validated once, when the request is submitted.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "onward/onward_c.h"
#include "sampling/option.h"

namespace onward {

// Whose order the stages have; the places are in the rows of the stages (stage.h).
enum class ChainOrder : uint8_t { hf, vllm, llama_cpp };

// The numbers are members of the C interface's struct, which is the only place that declares them.
// Its pointers and `size` are not used: members of the same names own their values.
//
// Defaults, legal values and meanings are in the tables of the stages: score_stages() in
// processors.cpp and draw_stages() in filters.cpp.
struct SamplingOptions : onward_sampling {
  SamplingOptions();

  LogitBiases logit_bias;
  TokenIds dry_sequence_breakers;
  TokenIdLists bad_words_ids;
  std::optional<TokenIds> allowed_token_ids;  // none: all are allowed
  TokenIds suppress_tokens;
  TokenIds stop_token_ids;
  int64_t min_new_tokens = 0;
  std::shared_ptr<ScoreRule> logits_processor;  // null: none
  std::shared_ptr<ScoreRule> grammar;           // null: none
  ChainOrder order = ChainOrder::hf;
  int64_t logprobs = -1;  // of the chosen token and of the N most likely ones; -1: none

  // Takes the numbers of a caller's struct.
  void set_numbers(const onward_sampling& numbers);

  // InvalidArgument that names the option, what was found and what was expected.
  void validate(int64_t vocab_size) const;
};

// Options that belong to no stage.
std::span<const Option<SamplingOptions>> stageless_options();

}  // namespace onward
