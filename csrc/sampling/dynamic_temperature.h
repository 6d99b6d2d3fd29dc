// A temperature that follows how sure the model is.
#pragma once

#include "sampling/filters.h"

namespace onward {

// llama.cpp's rule: from temperature - range (not below 0) where the distribution is a certainty to
// temperature + range where it is uniform, by (entropy / largest possible entropy) ^ exponent.
// `candidates` are all tokens, at temperature 1. Above 0, and finite.
double dynamic_temperature(const Candidates& candidates, double temperature, double range,
                           double exponent);

}  // namespace onward
