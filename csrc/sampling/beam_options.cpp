#include "sampling/beam_options.h"

#include <string>

#include "base/error.h"

namespace onward {
namespace {

using B = BeamOptions;

constexpr Range kCount = between(1, 2147483647);

constexpr Option<B> kOptions[] = {
    {"num_return_sequences", &B::num_return_sequences,
     "outputs for each prompt, which is read once; with beams, the best hypotheses", 1, kCount},
    {"num_beams", &B::num_beams, "beam search with this many hypotheses; 1 is off", 1, kCount},
    {"num_beam_groups", &B::num_beam_groups,
     "groups of beams, searched one after another; divides num_beams", 1, kCount},
    {"diversity_penalty", &B::diversity_penalty,
     "subtracted from a token's log-probability for each beam of an earlier group that took it", 0,
     at_least(0), "Beams that took the token in the same step count"},
    {"length_penalty",
     &B::length_penalty,
     "a hypothesis scores the sum of its log-probabilities / its length to this power",
     1,
     {},
     "The length includes the end token, not the prompt"},
    {"early_stopping",
     &B::early_stopping,
     "when a beam search ends: on (True) with num_beams hypotheses, off (False) when none is "
     "likely to be better, never when none can be better",
     0,
     {},
     "False compares the best live beam, at its present length, with the worst "
     "hypothesis; \"never\" compares it at the length that is best for it"},
};

}  // namespace

std::span<const Option<BeamOptions>> beam_options() { return kOptions; }

BeamOptions::BeamOptions() : onward_beams{} {
  for (const Option<B>& option : kOptions) set_default(*this, option);
}

void BeamOptions::validate() const {
  for (const Option<B>& option : kOptions) check_option(*this, option, 0);
  if (num_beams % num_beam_groups != 0) {
    throw InvalidArgument("num_beam_groups: found " + std::to_string(num_beam_groups) +
                          ", expected a divisor of num_beams, which is " +
                          std::to_string(num_beams));
  }
  if (num_return_sequences > num_beams) {
    throw InvalidArgument("num_return_sequences: found " + std::to_string(num_return_sequences) +
                          ", expected at most num_beams, which is " + std::to_string(num_beams));
  }
}

}  // namespace onward
