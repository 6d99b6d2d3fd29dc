#include "engine/scheduler.h"

#include <algorithm>

namespace onward {
namespace {

struct Waiting {
  Generation* generation;
  Sequence* sequence;
  int64_t since;  // a step, earlier by its priority

  bool prefill() const { return sequence->generated() == 0; }
};

int64_t ahead(const Generation& generation) {
  return generation.request().priority * Scheduler::kPrioritySteps;
}

bool waits_longer(const Waiting& a, const Waiting& b) { return a.since < b.since; }

// Of those served in the same step, the one who was served first.
bool has_turn_before(const Waiting& a, const Waiting& b) {
  if (a.since != b.since) return a.since < b.since;
  return a.sequence->last_served < b.sequence->last_served;
}

}  // namespace

void Scheduler::admit(const Generations& generations) {
  int64_t places = max_sequences_;
  for (const auto& generation : generations) {
    if (generation->admitted) places -= generation->width();
  }
  if (places <= 0) return;
  std::vector<Generation*> waiting;
  for (const auto& generation : generations) {
    if (!generation->admitted) waiting.push_back(generation.get());
  }
  std::stable_sort(waiting.begin(), waiting.end(), [](const Generation* a, const Generation* b) {
    return a->arrival - ahead(*a) < b->arrival - ahead(*b);
  });
  // Nobody overtakes the first one, however many places it needs: it would never get them.
  for (Generation* generation : waiting) {
    if (generation->width() > places) break;
    places -= generation->width();
    generation->admitted = true;
    // Its turns begin now: those who have a place are not made to wait for those who had none.
    for (Sequence* sequence : generation->sequences()) sequence->last_turn = turn_ - 1;
  }
}

std::vector<Share> Scheduler::share_out(const Generations& generations) {
  std::vector<Waiting> turns;
  std::vector<Waiting> prompts;
  for (const auto& generation : generations) {
    if (!generation->admitted) continue;
    for (Sequence* sequence : generation->sequences()) {
      if (sequence->decodes()) {
        turns.push_back({generation.get(), sequence, sequence->last_turn - ahead(*generation)});
      } else {
        // A sequence without a cache reads all it has written again for every token.
        const bool reads_again = sequence->generated() > 0;
        const int64_t since = reads_again ? sequence->last_turn : generation->arrival;
        prompts.push_back({generation.get(), sequence, since - ahead(*generation)});
      }
    }
  }
  std::stable_sort(prompts.begin(), prompts.end(), waits_longer);
  if (!prompts.empty()) {
    const Waiting& head = prompts.front();
    turns.push_back({head.generation, head.sequence, prompts_turn_ - ahead(*head.generation)});
  }
  std::stable_sort(turns.begin(), turns.end(), has_turn_before);

  std::vector<Share> shares;
  int64_t budget = step_tokens_;
  bool head_has_turn = false;
  for (const Waiting& turn : turns) {
    if (budget == 0) break;
    --budget;
    if (turn.sequence->decodes()) {
      shares.push_back(
          {turn.generation, turn.sequence, turn.sequence->place.computed, 1, turn.prefill()});
    } else {
      head_has_turn = true;  // takes its share below, with what is left of the step
    }
  }
  const size_t decodes = shares.size();
  if (head_has_turn) {
    ++budget;
    prompts_turn_ = turn_;
  }
  for (const Waiting& prompt : prompts) {
    if (budget == 0) break;
    const int64_t tokens = std::min(prompt.sequence->pending(), budget);
    budget -= tokens;
    shares.push_back({prompt.generation, prompt.sequence, prompt.sequence->place.computed, tokens,
                      prompt.prefill()});
  }
  for (size_t i = 0; i < decodes; ++i) {
    std::vector<int32_t>& guesses = shares[i].sequence->guesses;
    guesses.resize(std::min(guesses.size(), static_cast<size_t>(budget)));
    shares[i].tokens += static_cast<int64_t>(guesses.size());
    budget -= static_cast<int64_t>(guesses.size());
  }
  for (const Share& share : shares) {
    const bool whole = share.first_position + share.tokens >= share.sequence->size();
    if (whole) share.sequence->last_turn = turn_;
    share.sequence->last_served = served_++;
  }
  ++turn_;
  return shares;
}

StepPlan Scheduler::plan(const Generations& generations) {
  StepPlan plan;
  plan.shares = share_out(generations);
  StepBatch& batch = plan.batch;
  for (Share& share : plan.shares) {
    Sequence& sequence = *share.sequence;
    const int64_t end = share.first_position + share.tokens;
    const int64_t first_row = static_cast<int64_t>(batch.token_ids.size());
    sequence.place.blocks.make_writable(share.first_position, end);
    batch.slices.push_back(
        {first_row, share.tokens, share.first_position, sequence.place.blocks.blocks()});
    for (int64_t position = share.first_position; position < end; ++position) {
      batch.token_ids.push_back(sequence.token_at(position));
    }
    const bool all_rows = share.prefill && share.generation->wants_prompt_logits();
    if (all_rows) {
      share.logits_rows = share.tokens;
    } else if (end >= sequence.size()) {
      share.logits_rows = end - sequence.size() + 1;
    }
    if (share.logits_rows == 0) continue;
    share.logits_row = static_cast<int64_t>(batch.logits_rows.size());
    for (int64_t row = share.tokens - share.logits_rows; row < share.tokens; ++row) {
      batch.logits_rows.push_back(first_row + row);
    }
  }
  return plan;
}

}  // namespace onward
