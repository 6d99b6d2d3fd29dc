#include "sampling/mirostat.h"

#include <algorithm>
#include <cmath>

namespace onward {

void Mirostat::keep(Candidates& candidates) const { keep_probable(candidates, std::exp2(-cut_)); }

void Mirostat::observe(const Candidates& candidates, int32_t token) {
  const auto place = std::find(candidates.id.begin(), candidates.id.end(), token);
  const double score = candidates.score[static_cast<size_t>(place - candidates.id.begin())];
  const double surprise = (std::log(total_weight(candidates)) - score) / std::log(2.0);
  cut_ -= eta_ * (surprise - tau_);
}

}  // namespace onward
