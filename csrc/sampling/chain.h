// The order of the stages between logits and a token: the one place that knows it.
#pragma once

#include <string>
#include <vector>

#include "sampling/sampling_options.h"

namespace onward {

enum class Stage : uint8_t {
  // Processors: scores of the whole vocabulary, greedy or not.
  logit_bias,
  repetition_penalty,
  presence_penalty,
  frequency_penalty,
  dry,
  no_repeat_ngram,
  bad_words,
  min_new_tokens,
  allowed_tokens,
  suppress_tokens,
  logits_processor,
  grammar,
  // Of the draw.
  temperature,
  top_n_sigma,
  top_k,
  top_p,
  min_p,
  typical_p,
  epsilon_cutoff,
  eta_cutoff,
  xtc,
  mirostat,
};

struct Chain {
  std::vector<Stage> processors;
  std::vector<Stage> draw;  // empty: greedy
};

// The stages that these options turn on, in the order that they ask for.
Chain chain_of(const SamplingOptions& options);

// Each by the option that turns it on, then "greedy" or "draw".
std::vector<std::string> stage_names(const SamplingOptions& options);

// "hf", "vllm" or "llama.cpp". InvalidArgument for any other name.
ChainOrder chain_order(const std::string& name);
const char* chain_order_name(ChainOrder order);

}  // namespace onward
