// How a beam search runs. Validated once, when the request is submitted.
#pragma once

#include <cstdint>
#include <span>

#include "onward/onward_c.h"
#include "sampling/option.h"

namespace onward {

enum class EarlyStopping : uint8_t {
  heuristic,  // false: when the best live beam, at its present length, is no better than the worst
  full,       // true: when there are as many finished hypotheses as beams
  never,      // "never": like false, at the length that is best for the live beam
};

// The numbers are members of the C interface's struct, which is the only place that declares them.
struct BeamOptions : onward_beams {
  BeamOptions();

  EarlyStopping early_stopping = EarlyStopping::heuristic;

  // InvalidArgument that names the option.
  void validate() const;
};

// Defaults, legal values and meanings.
std::span<const Option<BeamOptions>> beam_options();

}  // namespace onward
