// How the logits of a router become the chosen experts of a token and their weights.
#pragma once

#include <cstdint>

namespace onward {

//   score   softmax of all logits, or sigmoid of each logit; sparse mixer (Liu et al. 2024): see
//           below
//   choice  by score + correction: the best `chosen_groups` groups of experts, by their best value
//   or
//           by the sum of their best two; in them the best `chosen` experts; the lower index wins a
//           tie
//   weight  score, divided by the sum of the chosen scores if `normalise`, times `scale`
// The sparse mixer chooses by logit alone. The weight of a chosen expert is its softmax among
// the experts that were not chosen before it. An expert with logit x takes no part if
// (own - x) / max(own, |x|) > 2 * jitter.
struct Routing {
  int64_t experts = 0;
  int64_t chosen = 0;
  bool sigmoid = false;
  bool sparse_mixer = false;
  float jitter = 0.0f;
  bool normalise = false;
  float scale = 1.0f;
  int64_t groups = 1;
  int64_t chosen_groups = 1;
  bool top2 = false;
};

struct ChosenExpert {
  int32_t expert = 0;
  float weight = 0;
};

}  // namespace onward
