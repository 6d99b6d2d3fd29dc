// Chooses the sequences of the next step and the number of tokens of each.
//
// A step has a budget of tokens. Sequences that need one token (decodes) take turns with the queue
// of longer prompts: the one that was served longest ago comes first. So a prompt is read even if
// decodes could fill every step, and prompts, however long or many, never take the place of a
// decode. The rest of the budget goes to prompts in the order of arrival, then to guesses. A level
// of priority counts as kPrioritySteps steps of waiting. With a budget of B tokens, S decodes of
// equal priority are each served within S / B + 1 steps; one more level of priority among the
// others delays this by at most kPrioritySteps steps.
//
// A sequence begins with the kept prefix of its prompt. If another sequence is reading the same
// beginning, it waits for that instead of reading it a second time. When the cache is full, the
// youngest request gives up its place; it gets one again when there is room for all that it has
// read and written. A request is admitted only with room for its prompt.
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
  int64_t logits_row = -1;  // its first row of the step's logits; -1: none
  int64_t logits_rows = 0;  // one for each of its last tokens

  int64_t first_logits_position() const { return first_position + tokens - logits_rows; }
};

struct StepPlan {
  std::vector<Share> shares;
  StepBatch batch;
};

class Scheduler {
 public:
  static constexpr int64_t kPrioritySteps = 16;
  // Waiting for another reader costs a step, so it must save at least this many tokens.
  static constexpr int64_t kWorthWaiting = 64;
  using Generations = std::vector<std::unique_ptr<Generation>>;

  // step_tokens: tokens of one step at most. max_sequences: sequences with a place in the cache.
  Scheduler(int64_t step_tokens, int64_t max_sequences, KvCache& cache)
      : step_tokens_(step_tokens), max_sequences_(max_sequences), cache_(cache) {}

  int64_t step_tokens() const { return step_tokens_; }
  int64_t max_sequences() const { return max_sequences_; }

  void arrive(Generation& generation) { generation.arrival = turn_; }
  // Gives places to waiting requests, by priority and arrival, while there are free places.
  void admit(const Generations& generations);
  StepPlan plan(const Generations& generations);
  // Takes the place of the youngest request that has one; false if none has.
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
  int64_t served_ = 0;  // counts the shares of all steps
  int64_t preempted_ = 0;
  int64_t prompts_turn_ = -1;  // the step in which the queue of prompts last had a turn
};

}  // namespace onward
