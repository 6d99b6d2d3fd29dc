#include "sampling/dynamic_temperature.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace onward {

double dynamic_temperature(const Candidates& candidates, double temperature, double range,
                           double exponent) {
  if (candidates.size() <= 1) return temperature;
  const double most = std::log(static_cast<double>(candidates.size()));
  const double share = std::clamp(entropy(candidates) / most, 0.0, 1.0);
  const double low = std::max(0.0, temperature - range);
  const double reached = low + (temperature + range - low) * std::pow(share, exponent);
  using Limits = std::numeric_limits<double>;
  return std::clamp(reached, Limits::min(), Limits::max());
}

}  // namespace onward
