// Who is in the next step, and with how many tokens. Knows sequences and their turns; not what is
// computed, nor what becomes of it.
//
// A step has a budget of tokens. Whoever waits for one token takes turns with the queue of longer
// prompts: the one who was served longest ago comes first, so a prompt is read although decodes
// would fill every step, and neither a prompt of any length nor any number of them takes a decode's
// place. What is left goes to prompts, first come, first served, then to guesses. A level of
// priority counts as kPrioritySteps steps of waiting: with a budget of B tokens, S of equal
// priority that wait for one are each served within S / B + 1 steps, and a level more of priority
// among the others makes that kPrioritySteps later at most, never for ever.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/generation.h"
#include "model/decoder.h"

namespace onward {

// A sequence's part of a step.
struct Share {
  Generation* generation = nullptr;
  Sequence* sequence = nullptr;
  int64_t first_position = 0;
  int64_t tokens = 0;
  bool prefill = false;     // before the sequence's first output
  int64_t logits_row = -1;  // its first row among the step's logits; -1: it has none
  int64_t logits_rows = 0;  // those of its last tokens

  int64_t first_logits_position() const { return first_position + tokens - logits_rows; }
};

struct StepPlan {
  std::vector<Share> shares;
  StepBatch batch;
};

class Scheduler {
 public:
  static constexpr int64_t kPrioritySteps = 16;
  using Generations = std::vector<std::unique_ptr<Generation>>;

  // step_tokens: tokens of one step at most. max_sequences: sequences with a place in the cache.
  Scheduler(int64_t step_tokens, int64_t max_sequences)
      : step_tokens_(step_tokens), max_sequences_(max_sequences) {}

  int64_t step_tokens() const { return step_tokens_; }
  int64_t max_sequences() const { return max_sequences_; }

  void arrive(Generation& generation) { generation.arrival = turn_; }
  // Gives places to those that wait, by priority and arrival, as long as there are any.
  void admit(const Generations& generations);
  StepPlan plan(const Generations& generations);

 private:
  std::vector<Share> share_out(const Generations& generations);

  int64_t step_tokens_;
  int64_t max_sequences_;
  int64_t turn_ = 0;           // counts planned steps
  int64_t served_ = 0;         // counts shares of them
  int64_t prompts_turn_ = -1;  // the step in which the queue of prompts last had a turn
};

}  // namespace onward
