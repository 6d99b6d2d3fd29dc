#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "onward/error.h"
#include "sampling/log_probability.h"

namespace onward {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

// Who is in the step, and with how many tokens.
struct Engine::StepPlan {
  struct Share {
    Sequence* sequence;
    int64_t tokens;
    bool prefill;
    int64_t logits_row = -1;  // among the step's logits, where its next token is sampled
  };
  std::vector<Share> shares;
  StepBatch batch;
};

Engine::Engine(std::shared_ptr<const Model> model, std::unique_ptr<Backend> backend,
               int64_t prefill_chunk_tokens)
    : model_(std::move(model)),
      backend_(std::move(backend)),
      decoder_(model_, *backend_),
      pool_(*backend_, decoder_.cache_layout()),
      prefill_chunk_tokens_(prefill_chunk_tokens) {
  if (prefill_chunk_tokens < 1) {
    throw InvalidArgument("prefill_chunk_tokens: found " + std::to_string(prefill_chunk_tokens) +
                          ", expected at least 1");
  }
}

void Engine::check_tokens(const char* where, const std::vector<int32_t>& token_ids) const {
  const DecoderSpec& spec = model_->spec;
  if (token_ids.empty()) {
    throw InvalidArgument(std::string(where) + ": no token ids, expected at least one");
  }
  if (static_cast<int64_t>(token_ids.size()) > spec.max_context) {
    throw InvalidArgument(std::string(where) + ": has " + std::to_string(token_ids.size()) +
                          " tokens, expected at most the model's context of " +
                          std::to_string(spec.max_context));
  }
  for (const int32_t id : token_ids) {
    if (id >= 0 && id < spec.vocab_size) continue;
    throw InvalidArgument(std::string(where) + ": token id " + std::to_string(id) +
                          " is outside the vocabulary, expected 0 to " +
                          std::to_string(spec.vocab_size - 1));
  }
}

int64_t Engine::submit(Request request) {
  check_tokens("prompt", request.prompt);
  if (request.max_new_tokens < 0 || request.min_new_tokens < 0) {
    throw InvalidArgument("max_new_tokens, min_new_tokens: found " +
                          std::to_string(request.max_new_tokens) + ", " +
                          std::to_string(request.min_new_tokens) + ", expected at least 0");
  }
  for (const int32_t id : request.stop_token_ids) {
    if (id < 0 || id >= model_->spec.vocab_size) {
      throw InvalidArgument("stop_token_ids: token id " + std::to_string(id) +
                            " is outside the vocabulary, expected 0 to " +
                            std::to_string(model_->spec.vocab_size - 1));
    }
  }
  auto sequence = std::make_unique<Sequence>(next_id_, std::move(request), model_->spec.vocab_size,
                                             model_->spec.max_context, pool_);
  if (sequence->full()) {
    Event event;
    event.request = next_id_;
    event.finish = FinishReason::length;
    event.time = now();
    finished_at_submit_.push_back(std::move(event));
  } else {
    running_.push_back(std::move(sequence));
  }
  return next_id_++;
}

void Engine::cancel(int64_t request) {
  const auto matches = [request](const auto& sequence) { return sequence->id() == request; };
  running_.erase(std::remove_if(running_.begin(), running_.end(), matches), running_.end());
}

void Engine::cancel_all() { running_.clear(); }

Engine::StepPlan Engine::plan_step() {
  // Whoever waits for one token takes turns with the prompt at the head of the queue: the one who
  // was served longest ago comes first, a decode before the prompt. So a prompt is read although
  // decodes would fill every step, and a prompt of any length takes no decode's place.
  std::vector<Sequence*> turns;
  std::vector<Sequence*> prompts;  // first come, first served
  for (const auto& sequence : running_) {
    (sequence->pending() == 1 ? turns : prompts).push_back(sequence.get());
  }
  // A sequence without a cache reads all it has written again for every token: it comes after those
  // who wait for their first one.
  std::stable_partition(prompts.begin(), prompts.end(),
                        [](const Sequence* sequence) { return sequence->generated() == 0; });
  if (!prompts.empty()) turns.push_back(prompts.front());
  std::stable_sort(turns.begin(), turns.end(), [](const Sequence* a, const Sequence* b) {
    return a->last_turn() < b->last_turn();
  });
  StepPlan plan;
  int64_t budget = prefill_chunk_tokens_;
  bool head_has_turn = false;
  for (Sequence* sequence : turns) {
    if (budget == 0) break;
    --budget;
    sequence->take_turn(turn_);
    if (sequence->pending() > 1) {
      head_has_turn = true;  // takes its share below, with what is left of the step
    } else {
      plan.shares.push_back({sequence, 1, sequence->generated() == 0});
    }
  }
  ++turn_;
  if (head_has_turn) ++budget;
  for (Sequence* sequence : prompts) {
    if (budget == 0) break;
    const int64_t tokens = std::min(sequence->pending(), budget);
    budget -= tokens;
    plan.shares.push_back({sequence, tokens, sequence->generated() == 0});
  }

  StepBatch& batch = plan.batch;
  for (StepPlan::Share& share : plan.shares) {
    Sequence& sequence = *share.sequence;
    const int64_t first = sequence.computed();
    sequence.blocks().reserve_tokens(first + share.tokens);
    batch.slices.push_back({static_cast<int64_t>(batch.token_ids.size()), share.tokens, first,
                            sequence.blocks().blocks()});
    const auto begin = sequence.tokens().begin() + first;
    batch.token_ids.insert(batch.token_ids.end(), begin, begin + share.tokens);
    if (share.tokens == sequence.pending()) {
      share.logits_row = static_cast<int64_t>(batch.logits_rows.size());
      batch.logits_rows.push_back(static_cast<int64_t>(batch.token_ids.size()) - 1);
    }
  }
  return plan;
}

std::vector<Event> Engine::step(const Decoder::Poll& poll) {
  std::vector<Event> events;
  StepPlan plan = plan_step();
  if (!plan.shares.empty()) {
    std::vector<float> logits;  // (logits_rows, vocab_size)
    decoder_.forward(plan.batch, poll, logits);
    ++stats_.steps;
    for (const StepPlan::Share& share : plan.shares) {
      share.sequence->advance(share.tokens);
      count(share.tokens, share.prefill);
      if (share.logits_row < 0) continue;
      Event event;
      try {
        event = share.sequence->sample(logits.data() + share.logits_row * model_->spec.vocab_size);
      } catch (const Error& error) {
        event.request = share.sequence->id();
        event.finish = FinishReason::error;
        event.error = error.what();
        event.numerics_error = dynamic_cast<const NumericsError*>(&error) != nullptr;
        event.invalid_argument = dynamic_cast<const InvalidArgument*>(&error) != nullptr;
      }
      event.time = now();
      events.push_back(std::move(event));
    }
  }
  for (const Event& event : events) {
    if (event.finish != FinishReason::none) cancel(event.request);
  }
  events.insert(events.end(), finished_at_submit_.begin(), finished_at_submit_.end());
  finished_at_submit_.clear();
  std::sort(events.begin(), events.end(),
            [](const Event& a, const Event& b) { return a.request < b.request; });
  return events;
}

void Engine::count(int64_t tokens, bool prefill) {
  (prefill ? stats_.prefill_tokens : stats_.decode_tokens) += tokens;
  stats_.kv_computations += tokens;
}

template <typename Consume>
void Engine::read(const std::vector<int32_t>& token_ids, const Decoder::Poll& poll,
                  const Consume& consume) {
  check_tokens("token_ids", token_ids);
  const int64_t tokens = static_cast<int64_t>(token_ids.size());
  BlockTable blocks(pool_);
  blocks.reserve_tokens(tokens);
  std::vector<float> logits;  // (chunk, vocab_size)
  for (int64_t first = 0; first < tokens; first += prefill_chunk_tokens_) {
    const int64_t chunk = std::min(prefill_chunk_tokens_, tokens - first);
    StepBatch batch;
    batch.token_ids.assign(token_ids.begin() + first, token_ids.begin() + first + chunk);
    batch.slices.push_back({0, chunk, first, blocks.blocks()});
    for (int64_t row = 0; row < chunk; ++row) batch.logits_rows.push_back(row);
    decoder_.forward(batch, poll, logits);
    count(chunk, true);
    consume(first, logits);
  }
}

std::vector<float> Engine::logits(const std::vector<int32_t>& token_ids,
                                  const Decoder::Poll& poll) {
  std::vector<float> all;
  read(token_ids, poll, [&](int64_t, const std::vector<float>& logits) {
    all.insert(all.end(), logits.begin(), logits.end());
  });
  return all;
}

std::vector<double> Engine::score(const std::vector<int32_t>& token_ids,
                                  const Decoder::Poll& poll) {
  const int64_t tokens = static_cast<int64_t>(token_ids.size());
  const int64_t vocab_size = model_->spec.vocab_size;
  std::vector<double> scores;
  read(token_ids, poll, [&](int64_t first, const std::vector<float>& logits) {
    const int64_t rows = static_cast<int64_t>(logits.size()) / vocab_size;
    for (int64_t row = 0; row < rows && first + row + 1 < tokens; ++row) {
      scores.push_back(log_probability(logits.data() + row * vocab_size, vocab_size,
                                       token_ids[first + row + 1]));
    }
  });
  return scores;
}

EngineStats Engine::stats() const {
  EngineStats stats = stats_;
  stats.running = static_cast<int64_t>(running_.size());
  stats.cache_blocks_in_use = pool_.blocks_in_use();
  stats.cache_block_bytes = pool_.layout().block_bytes();
  stats.cache_bytes_reserved = pool_.blocks_reserved() * pool_.layout().block_bytes();
  return stats;
}

}  // namespace onward
