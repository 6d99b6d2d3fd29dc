// A temperature that depends on how sure the model is.
#pragma once

#include "sampling/filters.h"

namespace onward {

// The rule of llama.cpp: from temperature - range (at least 0) for a certain distribution to
// temperature + range for a uniform one, by (entropy / largest possible entropy) ^ exponent.
// `candidates` are at temperature 1. The result is finite and above 0.
double dynamic_temperature(const Candidates& candidates, double temperature, double range,
                           double exponent);

}  // namespace onward
