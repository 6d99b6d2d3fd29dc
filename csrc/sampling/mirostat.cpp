#include "sampling/mirostat.h"

#include <cmath>

namespace onward {

void Mirostat::keep(Candidates& candidates) const { keep_probable(candidates, std::exp2(-cut_)); }

void Mirostat::observe(const Candidates& candidates, int32_t token) {
  const double surprise = -log_probability_of(candidates, token) / std::log(2.0);
  cut_ -= eta_ * (surprise - tau_);
}

}  // namespace onward
