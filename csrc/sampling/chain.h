// The stages that a request turns on, in the order that it asks for.
#pragma once

#include <string>
#include <vector>

#include "sampling/stage.h"

namespace onward {

struct Chain {
  std::vector<const ScoreStage*> processors;
  std::vector<const DrawStage*> draw;  // empty: greedy
};

Chain chain_of(const SamplingOptions& options);

// Each stage by the option that turns it on, then "greedy" or "draw".
std::vector<std::string> stage_names(const SamplingOptions& options);

// "hf", "vllm" or "llama.cpp". InvalidArgument for any other name.
ChainOrder chain_order(const std::string& name);
const char* chain_order_name(ChainOrder order);
// In the order of the enum.
std::vector<std::string> chain_order_names();

}  // namespace onward
