#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>

#include "engine/beam_generation.h"
#include "engine/sampled_generation.h"
#include "onward/error.h"
#include "sampling/log_probability.h"

namespace onward {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void require(bool condition, const std::string& name, int64_t found, const std::string& expected) {
  if (condition) return;
  throw InvalidArgument(name + ": found " + std::to_string(found) + ", expected " + expected);
}

}  // namespace

Engine::Engine(std::shared_ptr<const Model> model, std::unique_ptr<Backend> backend,
               const EngineOptions& options, std::shared_ptr<const Model> draft)
    : model_(std::move(model)),
      backend_(std::move(backend)),
      decoder_(model_, *backend_),
      pool_(*backend_, decoder_.cache_layout()),
      scheduler_(options.prefill_chunk_tokens, options.max_sequences) {
  require(options.prefill_chunk_tokens >= 1, "prefill_chunk_tokens", options.prefill_chunk_tokens,
          "at least 1");
  require(options.max_sequences >= 1, "max_sequences", options.max_sequences, "at least 1");
  if (!draft) return;
  require(draft->spec.vocab_size == model_->spec.vocab_size, "draft model: vocab_size",
          draft->spec.vocab_size, std::to_string(model_->spec.vocab_size) + ", the model's");
  draft_ = std::make_unique<DraftModel>(std::move(draft), *backend_, options.prefill_chunk_tokens);
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

void Engine::check(const Request& request) const {
  check_tokens("prompt", request.prompt);
  require(request.max_new_tokens >= 0, "max_new_tokens", request.max_new_tokens, "at least 0");
  require(request.num_sequences >= 1, "num_sequences", request.num_sequences, "at least 1");
  require(request.prompt_logprobs >= -1, "prompt_logprobs", request.prompt_logprobs,
          "at least 0, or -1 for none");
  const SpeculationOptions& speculation = request.speculation;
  require(speculation.lookup_tokens >= 0, "lookup_tokens", speculation.lookup_tokens, "at least 0");
  require(speculation.lookup_ngram >= 1, "lookup_ngram", speculation.lookup_ngram, "at least 1");
  require(speculation.draft_tokens >= 0, "draft_tokens", speculation.draft_tokens, "at least 0");
  if (speculation.draft_tokens > 0 && !draft_) {
    throw InvalidArgument("draft_tokens: the engine has no draft model, expected 0");
  }
  if (speculation.on() && (request.beams || !request.cache)) {
    throw InvalidArgument("speculation: with beams or without a cache, expected neither");
  }
  if (request.beams) {
    request.beams->validate();
    require(request.num_sequences == 1, "num_sequences", request.num_sequences, "1 with beams");
    require(request.sampling.mirostat == 0, "mirostat", request.sampling.mirostat, "0 with beams");
    if (request.sampling.dynatemp_range != 0) {
      throw InvalidArgument("dynatemp_range: is set, expected 0 with beams");
    }
  }
  const int64_t width = request.beams ? request.beams->num_beams : request.num_sequences;
  require(width <= scheduler_.max_sequences(), request.beams ? "num_beams" : "num_sequences", width,
          "at most max_sequences, which is " + std::to_string(scheduler_.max_sequences()));
  request.sampling.validate(model_->spec.vocab_size);
}

std::unique_ptr<Generation> Engine::make_generation(Request request) {
  const int64_t vocab_size = model_->spec.vocab_size, context = model_->spec.max_context;
  const bool writes =
      request.max_new_tokens > 0 && static_cast<int64_t>(request.prompt.size()) < context;
  if (request.beams && writes) {
    return std::make_unique<BeamGeneration>(next_id_, std::move(request), vocab_size, context,
                                            pool_);
  }
  if (request.beams) {  // as many empty outputs
    request.num_sequences = request.beams->num_return_sequences;
    request.beams.reset();
  }
  return std::make_unique<SampledGeneration>(next_id_, std::move(request), vocab_size, context,
                                             pool_);
}

int64_t Engine::submit(Request request) {
  check(request);
  auto generation = make_generation(std::move(request));
  scheduler_.arrive(*generation);
  generations_.push_back(std::move(generation));
  return next_id_++;
}

void Engine::cancel(int64_t request) {
  const auto matches = [request](const auto& generation) { return generation->id() == request; };
  generations_.erase(std::remove_if(generations_.begin(), generations_.end(), matches),
                     generations_.end());
}

void Engine::cancel(int64_t request, int64_t sequence) {
  for (const auto& generation : generations_) {
    if (generation->id() != request) continue;
    generation->drop(sequence);
    if (generation->finished()) cancel(request);
    return;
  }
}

void Engine::cancel_all() { generations_.clear(); }

std::vector<Event> Engine::step(const Decoder::Poll& poll) {
  scheduler_.admit(generations_);
  guess(poll);
  const StepPlan plan = scheduler_.plan(generations_);
  if (!plan.shares.empty()) {
    decoder_.forward(plan.batch, poll, logits_);
    ++stats_.steps;
    for (const Share& share : plan.shares) {
      share.sequence->place.computed += share.tokens;
      count(share.tokens, share.prefill);
    }
    choose(plan.shares);
  }
  return report();
}

void Engine::guess(const Decoder::Poll& poll) {
  std::vector<DraftModel::Wish> wishes;
  for (const auto& generation : generations_) {
    const SpeculationOptions& options = generation->request().speculation;
    if (!options.on() || !generation->admitted) continue;
    for (Sequence* sequence : generation->sequences()) {
      if (!sequence->decodes() || sequence->generated() == 0 || !sequence->guesses.empty())
        continue;
      // The last token that may be written is never worth guessing: it is chosen anyway.
      const int64_t useful = generation->room() - sequence->generated() - 1;
      if (useful <= 0) continue;
      if (options.lookup_tokens > 0) {
        sequence->guesses = look_up(sequence->tokens(), options.lookup_ngram,
                                    std::min(options.lookup_tokens, useful));
      }
      if (options.draft_tokens > 0 && sequence->guesses.empty()) {
        wishes.push_back({sequence, std::min(options.draft_tokens, useful)});
      }
    }
  }
  if (!wishes.empty()) draft_->guess(wishes, poll);
}

void Engine::choose(const std::vector<Share>& shares) {
  std::vector<const Share*> beside, alone;
  for (const Share& share : shares) {
    if (share.logits_rows == 0) continue;
    (share.generation->calls_rules() ? alone : beside).push_back(&share);
  }
  std::vector<std::exception_ptr> failures(beside.size());
  const auto take = [this](const Share& share) {
    share.generation->take(*share.sequence, share.first_logits_position(),
                           logits_.data() + share.logits_row * model_->spec.vocab_size,
                           share.logits_rows);
  };
  backend_->run_on_host(static_cast<int64_t>(beside.size()), [&](int64_t i) {
    try {
      take(*beside[static_cast<size_t>(i)]);
    } catch (...) {
      failures[static_cast<size_t>(i)] = std::current_exception();
    }
  });
  for (size_t i = 0; i < beside.size(); ++i) {
    if (failures[i]) beside[i]->generation->fail(failures[i]);
  }
  // Rules are the caller's own code: one at a time, and on this thread.
  for (const Share* share : alone) {
    if (share->generation->failed()) continue;
    try {
      take(*share);
    } catch (...) {
      share->generation->fail(std::current_exception());
    }
  }
}

std::vector<Event> Engine::report() {
  std::vector<Event> events;
  for (const auto& generation : generations_) {
    try {
      generation->report(events);
    } catch (...) {
      generation->fail(std::current_exception());
      generation->report(events);
    }
  }
  const double time = now();
  for (Event& event : events) event.time = time;
  generations_.erase(std::remove_if(generations_.begin(), generations_.end(),
                                    [](const auto& g) { return g->failed() || g->finished(); }),
                     generations_.end());
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
  blocks.make_writable(0, tokens);
  std::vector<float> logits;  // (chunk, vocab_size)
  for (int64_t first = 0; first < tokens; first += scheduler_.step_tokens()) {
    const int64_t chunk = std::min(scheduler_.step_tokens(), tokens - first);
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
  stats.running = static_cast<int64_t>(generations_.size());
  for (const auto& generation : generations_) stats.waiting += generation->admitted ? 0 : 1;
  stats.cache_blocks_in_use = pool_.blocks_in_use();
  stats.cache_block_bytes = pool_.layout().exact_block_bytes(0);
  stats.cache_bytes_reserved = pool_.blocks_reserved() * pool_.layout().exact_block_bytes(0);
  if (draft_) {
    stats.cache_blocks_in_use += draft_->blocks_in_use();
    stats.cache_bytes_reserved += draft_->blocks_reserved() * draft_->block_bytes();
  }
  return stats;
}

}  // namespace onward
