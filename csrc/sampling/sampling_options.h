// How one request turns logits into tokens. Validated once, when the request is submitted.
#pragma once

#include <cstdint>

namespace onward {

struct SamplingOptions {
  double temperature = 0;         // 0: greedy
  int64_t top_k = 0;              // 0: off
  double top_p = 1;               // 1: off
  double min_p = 0;               // 0: off
  double repetition_penalty = 1;  // 1: off
  uint64_t seed = 0;
  uint64_t stream = 0;  // tells equal requests of one call apart

  // InvalidArgument naming the option, what was found and what was expected.
  void validate() const;
};

}  // namespace onward
