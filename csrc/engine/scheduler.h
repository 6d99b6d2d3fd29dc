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
//
// Sequences begin with what the cache has kept of their prompts. One whose beginning another one is
// just reading waits for that instead of reading it a second time. Where the cache is full, the
// youngest request gives up its place; it gets one again when there is room for all it has read and
// written. A request goes in only with room for its prompt.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cache/kv_cache.h"
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
  // Waiting for a reader costs a step and saves the reading of so many tokens at least.
  static constexpr int64_t kWorthWaiting = 64;
  using Generations = std::vector<std::unique_ptr<Generation>>;

  // step_tokens: tokens of one step at most. max_sequences: sequences with a place in the cache.
  Scheduler(int64_t step_tokens, int64_t max_sequences, KvCache& cache)
      : step_tokens_(step_tokens), max_sequences_(max_sequences), cache_(cache) {}

  int64_t step_tokens() const { return step_tokens_; }
  int64_t max_sequences() const { return max_sequences_; }

  void arrive(Generation& generation) { generation.arrival = turn_; }
  // Gives places to those that wait, by priority and arrival, as long as there are any.
  void admit(const Generations& generations);
  StepPlan plan(const Generations& generations);
  // Takes the place of the youngest that has one; false when there is none.
  bool preempt(const Generations& generations);
  int64_t preempted() const { return preempted_; }

 private:
  std::vector<Share> share_out(const Generations& generations);
  bool begin(Generation& generation, Sequence& sequence, const std::vector<Sequence*>& readers);
  bool waits_for_reader(const Sequence& sequence, const std::vector<Sequence*>& readers);
  std::vector<Sequence*> readers(const Generations& generations) const;
  static bool drop_draft_places(const Generations& generations);
  int64_t growth_bytes(Generation& generation) const;
  void make_places(std::vector<Share>& shares, const Generations& generations);

  int64_t step_tokens_;
  int64_t max_sequences_;
  KvCache& cache_;
  int64_t turn_ = 0;    // counts planned steps
  int64_t served_ = 0;  // counts shares of them
  int64_t preempted_ = 0;
  int64_t prompts_turn_ = -1;  // the step in which the queue of prompts last had a turn
};

}  // namespace onward
