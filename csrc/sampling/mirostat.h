// Mirostat 2 (Basu et al. 2021), as in llama.cpp: a cut that follows the surprise of the text, so
// that it stays near tau bits per token. It replaces the filters.
#pragma once

#include <cstdint>

#include "sampling/filters.h"

namespace onward {

class Mirostat {
 public:
  Mirostat(double tau, double eta) : tau_(tau), eta_(eta), cut_(2 * tau) {}

  // Keeps the candidates whose surprise is at most the cut, and the best one.
  void keep(Candidates& candidates) const;

  // Moves the cut by the surprise of the token that was chosen among the kept ones.
  void observe(const Candidates& candidates, int32_t token);

 private:
  double tau_;
  double eta_;
  double cut_;  // in bits
};

}  // namespace onward
