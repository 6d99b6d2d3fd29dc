#include "engine/scheduler.h"

#include <algorithm>
#include <exception>
#include <string>

#include "base/error.h"

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

int64_t common_prefix(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  const auto end = a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size()));
  return std::mismatch(a.begin(), end, b.begin()).first - a.begin();
}

int64_t whole_blocks(int64_t tokens) {
  return tokens / CacheLayout::kBlockTokens * CacheLayout::kBlockTokens;
}

// Among sequences last served in the same step, the one that was served first goes first.
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
  if (waiting.empty()) return;
  std::vector<Sequence*> reading = readers(generations);
  int64_t room = cache_.available_bytes() - step_bytes(cache_.layout(), step_tokens_);
  bool alone = true;
  for (const auto& generation : generations) {
    if (!generation->admitted) continue;
    alone = false;
    room -= growth_bytes(*generation);
  }
  // The first request in the queue is never overtaken; otherwise a request that needs many places
  // would wait forever.
  for (Generation* generation : waiting) {
    if (generation->width() > places) break;
    const std::vector<Sequence*> sequences = generation->sequences();
    if (!sequences.empty() && generation->shares_prefixes() &&
        waits_for_reader(*sequences.front(), reading)) {
      continue;  // it would only wait for a reader
    }
    const int64_t growth = growth_bytes(*generation);
    if (growth > room && !alone) break;
    alone = false;
    room -= growth;
    places -= generation->width();
    generation->admitted = true;
    // Its turns begin now, so that it does not go before sequences that already have a place.
    for (Sequence* sequence : sequences) {
      sequence->last_turn = turn_ - 1;
      if (generation->shares_prefixes()) reading.push_back(sequence);
    }
  }
}

// The bytes that its sequences need until their next token, beyond the blocks they have or find.
int64_t Scheduler::growth_bytes(Generation& generation) const {
  int64_t bytes = 0;
  for (const Sequence* sequence : generation.sequences()) {
    int64_t has = sequence->place.bytes();
    if (!sequence->begun && generation.may_skip(*sequence)) {
      has = cache_.shared_bytes(sequence->tokens(), sequence->size() - 1);
    }
    bytes += std::max<int64_t>(0, sequence_bytes(cache_.layout(), sequence->size() + 1) - has);
  }
  return bytes;
}

// The sequences that compute a prefix which others may reuse.
std::vector<Sequence*> Scheduler::readers(const Generations& generations) const {
  std::vector<Sequence*> reading;
  for (const auto& generation : generations) {
    if (!generation->admitted || !generation->shares_prefixes()) continue;
    for (Sequence* sequence : generation->sequences()) {
      if (sequence->begun && sequence->pending() > 1) reading.push_back(sequence);
    }
  }
  return reading;
}

bool Scheduler::waits_for_reader(const Sequence& sequence, const std::vector<Sequence*>& readers) {
  if (!cache_.reuses()) return false;
  int64_t found = -1;  // looked up only when needed
  for (Sequence* reader : readers) {
    if (reader == &sequence) continue;
    const int64_t shared = whole_blocks(
        std::min(common_prefix(sequence.tokens(), reader->tokens()), sequence.size() - 1));
    if (shared < kWorthWaiting) continue;
    if (found < 0) found = cache_.match(sequence.tokens(), sequence.size() - 1);
    if (shared < found + kWorthWaiting) continue;
    if (reader->place.computed() < shared) {
      reader->keep_prefix_at(shared);
      return true;
    }
    cache_.remember(reader->tokens(), reader->place, shared);
    found = -1;
  }
  return false;
}

// Lets a sequence begin with its kept prefix. False if it waits for a reader.
bool Scheduler::begin(Generation& generation, Sequence& sequence,
                      const std::vector<Sequence*>& readers) {
  if (sequence.begun) return true;
  if (generation.may_skip(sequence)) {
    if (waits_for_reader(sequence, readers)) return false;
    const int64_t limit = sequence.size() - 1;
    const int64_t known = whole_blocks(cache_.known(sequence.tokens(), limit));
    sequence.place = cache_.begin(sequence.tokens(), limit);
    // Other sequences share more tokens, but none was kept there: keep one for the next sequence.
    if (known > sequence.place.computed()) sequence.keep_prefix_at(known);
    generation.begin_with(sequence, sequence.place.computed());
  }
  sequence.begun = true;
  return true;
}

std::vector<Share> Scheduler::share_out(const Generations& generations) {
  std::vector<Waiting> turns;
  std::vector<Waiting> prompts;
  std::vector<Sequence*> reading = readers(generations);
  for (const auto& generation : generations) {
    if (!generation->admitted) continue;
    for (Sequence* sequence : generation->sequences()) {
      const bool newly = !sequence->begun;
      if (!begin(*generation, *sequence, reading)) continue;
      if (newly && generation->shares_prefixes() && sequence->pending() > 1) {
        reading.push_back(sequence);
      }
      if (sequence->decodes()) {
        turns.push_back({generation.get(), sequence, sequence->last_turn - ahead(*generation)});
      } else {
        // A sequence without a cache computes all of its tokens again for every new token.
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
          {turn.generation, turn.sequence, turn.sequence->place.computed(), 1, turn.prefill()});
    } else {
      head_has_turn = true;  // gets its share below, from the rest of the step
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
    shares.push_back({prompt.generation, prompt.sequence, prompt.sequence->place.computed(), tokens,
                      prompt.prefill()});
  }
  for (size_t i = 0; i < decodes; ++i) {
    std::vector<int32_t>& guesses = shares[i].sequence->guesses;
    guesses.resize(std::min(guesses.size(), static_cast<size_t>(budget)));
    shares[i].tokens += static_cast<int64_t>(guesses.size());
    budget -= static_cast<int64_t>(guesses.size());
  }
  return shares;
}

// Frees the places in the draft model's cache, which go first; false if there are none.
bool Scheduler::drop_draft_places(const Generations& generations) {
  bool dropped = false;
  for (const auto& generation : generations) {
    for (Sequence* sequence : generation->sequences()) {
      if (sequence->draft_place && sequence->draft_place->bytes() > 0) dropped = true;
      sequence->draft_place.reset();
    }
  }
  return dropped;
}

bool Scheduler::preempt(const Generations& generations) {
  Generation* youngest = nullptr;
  for (const auto& generation : generations) {
    if (!generation->admitted) continue;
    const auto since = [](const Generation& g) { return g.arrival - ahead(g); };
    if (youngest == nullptr || since(*generation) >= since(*youngest)) youngest = generation.get();
  }
  if (youngest == nullptr) return false;
  youngest->lose_places();
  youngest->admitted = false;
  ++preempted_;
  return true;
}

// Makes room in the cache for every share. A share that gets no room, or whose request gave up its
// place, is removed. If the step frees blocks at its end, a share without room waits for that.
void Scheduler::make_places(std::vector<Share>& shares, const Generations& generations) {
  bool gives_back = false;
  for (Share& share : shares) {
    SequenceBlocks& place = share.sequence->place;
    const int64_t end = share.first_position + share.tokens;
    while (share.generation->admitted && !cache_.prepare(place, end)) {
      if (drop_draft_places(generations)) continue;
      if (gives_back) {
        share.tokens = 0;
        break;
      }
      preempt(generations);  // possibly the request of this very sequence
      const auto admitted = [](const auto& generation) { return generation->admitted; };
      if (std::any_of(generations.begin(), generations.end(), admitted)) continue;
      // No request is left to make room. submit() checks that a request fits, so this is a fault.
      share.generation->fail(std::make_exception_ptr(Error(
          "cache: " + std::to_string(cache_.available_bytes()) + " bytes left, expected room for " +
          std::to_string(end) + " tokens of the only sequence")));
    }
    gives_back =
        gives_back || (share.generation->admitted && share.tokens > 0 && place.gives_back());
  }
  const auto is_out = [](const Share& share) {
    return share.tokens == 0 || !share.generation->admitted;
  };
  shares.erase(std::remove_if(shares.begin(), shares.end(), is_out), shares.end());
  for (const Share& share : shares) {
    const bool whole = share.first_position + share.tokens >= share.sequence->size();
    if (whole) share.sequence->last_turn = turn_;
    share.sequence->last_served = served_++;
  }
  ++turn_;
}

StepPlan Scheduler::plan(const Generations& generations) {
  StepPlan plan;
  plan.shares = share_out(generations);
  make_places(plan.shares, generations);
  StepBatch& batch = plan.batch;
  for (Share& share : plan.shares) {
    Sequence& sequence = *share.sequence;
    const int64_t end = share.first_position + share.tokens;
    const int64_t first_row = static_cast<int64_t>(batch.token_ids.size());
    sequence.place.append_encodings(batch.encodings);
    batch.slices.push_back(
        {first_row, share.tokens, share.first_position, sequence.place.blocks()});
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
