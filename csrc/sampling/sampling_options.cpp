#include "sampling/sampling_options.h"

#include <cmath>
#include <sstream>

#include "onward/error.h"

namespace onward {
namespace {

void require(bool condition, const char* name, double found, const char* expected) {
  if (condition) return;
  std::ostringstream message;
  message << name << ": found " << found << ", expected " << expected;
  throw InvalidArgument(message.str());
}

}  // namespace

void SamplingOptions::validate() const {
  require(std::isfinite(temperature) && temperature >= 0, "temperature", temperature,
          "a finite number of at least 0");
  require(top_k >= 0, "top_k", static_cast<double>(top_k), "at least 0 (0 is off)");
  require(top_p >= 0 && top_p <= 1, "top_p", top_p, "a number from 0 to 1");
  require(min_p >= 0 && min_p <= 1, "min_p", min_p, "a number from 0 to 1");
  require(std::isfinite(repetition_penalty) && repetition_penalty > 0, "repetition_penalty",
          repetition_penalty, "a finite number above 0");
}

}  // namespace onward
