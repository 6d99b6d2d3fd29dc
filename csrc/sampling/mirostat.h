// Mirostat 2 (Basu et al. 2021), as llama.cpp has it: a cut that follows how surprising the text
// has been, so that it stays near tau bits a token. Takes the place of the filters.
#pragma once

#include <cstdint>

#include "sampling/filters.h"

namespace onward {

class Mirostat {
 public:
  Mirostat(double tau, double eta) : tau_(tau), eta_(eta), cut_(2 * tau) {}

  // Keeps what would surprise by no more bits than the cut; at least the best.
  void keep(Candidates& candidates) const;

  // Moves the cut by what has been chosen among the kept.
  void observe(const Candidates& candidates, int32_t token);

 private:
  double tau_;
  double eta_;
  double cut_;  // in bits
};

}  // namespace onward
