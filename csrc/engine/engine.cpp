#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <string>

#include "base/error.h"
#include "engine/beam_generation.h"
#include "engine/sampled_generation.h"
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

// Unlimited with attention_window: the positions of the model never run out there.
int64_t context_of(const DecoderSpec& spec, const EngineOptions& options) {
  const int64_t most =
      options.cache.attention_window > 0 ? std::numeric_limits<int32_t>::max() : spec.max_context;
  return options.max_context > 0 ? std::min(options.max_context, most) : most;
}

std::string of_bytes(int64_t bytes) { return std::to_string(bytes) + " bytes"; }

}  // namespace

Engine::Engine(std::shared_ptr<const Model> model, std::unique_ptr<Backend> backend,
               const EngineOptions& options, std::shared_ptr<const Model> draft)
    : model_(std::move(model)),
      backend_(std::move(backend)),
      decoder_(model_, *backend_, options.cache),
      max_context_(context_of(model_->spec, options)),
      budget_{options.cache_bytes, 0},
      cache_(*backend_, decoder_.cache_layout(), budget_, options.prefixes),
      scheduler_(options.prefill_chunk_tokens, options.max_sequences, cache_),
      logits_(decoder_, model_->spec.vocab_size) {
  require(options.prefill_chunk_tokens >= 1, "prefill_chunk_tokens", options.prefill_chunk_tokens,
          "at least 1");
  require(options.max_sequences >= 1, "max_sequences", options.max_sequences, "at least 1");
  require(options.max_context >= 0, "max_context", options.max_context, "at least 1");
  require(options.cache_bytes >= 1, "kv_cache_bytes", options.cache_bytes, "at least 1");
  require(options.cache.window_tokens >= 0, "kv_window_tokens", options.cache.window_tokens,
          "at least 0");
  require(options.cache.attention_window >= 0, "attention_window", options.cache.attention_window,
          "at least 1");
  if (!draft) return;
  require(draft->spec.vocab_size == model_->spec.vocab_size, "draft model: vocab_size",
          draft->spec.vocab_size, std::to_string(model_->spec.vocab_size) + ", the model's");
  draft_ = std::make_unique<DraftModel>(std::move(draft), *backend_, options.prefill_chunk_tokens,
                                        budget_);
}

void Engine::check_tokens(const char* where, const std::vector<int32_t>& token_ids) const {
  const DecoderSpec& spec = model_->spec;
  if (token_ids.empty()) {
    throw InvalidArgument(std::string(where) + ": no token ids, expected at least one");
  }
  if (static_cast<int64_t>(token_ids.size()) > max_context_) {
    throw InvalidArgument(
        std::string(where) + ": has " + std::to_string(token_ids.size()) +
        " tokens, expected at most " +
        (max_context_ == spec.max_context ? "the model's context of " : "max_context, which is ") +
        std::to_string(max_context_));
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
  check_fits(request);
}

// Whether the request fits the cache when all of its sequences have their full length.
void Engine::check_fits(const Request& request) const {
  const CacheLayout& layout = cache_.layout();
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t room = std::min(request.max_new_tokens, max_context_ - prompt);
  const int64_t sequences = request.beams ? request.beams->num_beams : request.num_sequences;
  const int64_t all = prompt + room;
  // A sequence after the first one needs its output and the last block of the prompt. It shares the
  // rest of the prompt, also after a preemption, if the prompt is long enough to wait for and not
  // coded. Coded prompts may have to be read by each sequence.
  const bool shares = request.cache && cache_.reuses() && !layout.coded() &&
                      prompt >= Scheduler::kWorthWaiting + CacheLayout::kBlockTokens;
  const int64_t own = shares ? std::min(prompt, CacheLayout::kBlockTokens) + room : all;
  const int64_t bytes = sequence_bytes(layout, all) +
                        step_bytes(layout, std::min(sequences * all, scheduler_.step_tokens())) +
                        (sequences - 1) * (sequence_bytes(layout, own) + step_bytes(layout, 1));
  if (bytes <= budget_.limit_bytes) return;
  throw InvalidArgument("kv_cache_bytes: " + std::to_string(sequences) + " x (" +
                        std::to_string(prompt) + " + " + std::to_string(room) +
                        ") tokens of prompt and output take " + of_bytes(bytes) +
                        ", expected at most " + of_bytes(budget_.limit_bytes) +
                        "; write fewer tokens (max_new_tokens) or allow more bytes");
}

std::unique_ptr<Generation> Engine::make_generation(Request request) {
  const int64_t vocab_size = model_->spec.vocab_size, context = max_context_;
  const bool writes =
      request.max_new_tokens > 0 && static_cast<int64_t>(request.prompt.size()) < context;
  if (request.beams && writes) {
    return std::make_unique<BeamGeneration>(next_id_, std::move(request), vocab_size, context,
                                            cache_);
  }
  if (request.beams) {  // the same number of empty outputs
    request.num_sequences = request.beams->num_return_sequences;
    request.beams.reset();
  }
  return std::make_unique<SampledGeneration>(next_id_, std::move(request), vocab_size, context,
                                             cache_);
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
  for (const auto& generation : generations_) {
    if (matches(generation)) generation->keep_prefixes();
  }
  generations_.erase(std::remove_if(generations_.begin(), generations_.end(), matches),
                     generations_.end());
  cache_.shed();
}

bool Engine::cancel(int64_t request, int64_t sequence) {
  for (const auto& generation : generations_) {
    if (generation->id() != request) continue;
    generation->drop(sequence);
    cache_.shed();
    const bool ended = generation->finished();
    if (ended) cancel(request);
    return ended;
  }
  return false;
}

void Engine::cancel_all() {
  generations_.clear();
  cache_.shed();
}

std::vector<Event> Engine::step(const Decoder::Poll& poll) {
  scheduler_.admit(generations_);
  guess(poll);
  const StepPlan plan = scheduler_.plan(generations_);
  if (!plan.shares.empty()) {
    decoder_.forward(plan.batch, poll);
    fetch_logits(plan.shares);
    ++stats_.steps;
    for (const Share& share : plan.shares) {
      share.sequence->place.advance(share.first_position + share.tokens);
      count(share.tokens, share.prefill);
    }
    choose(plan.shares);
    for (const Share& share : plan.shares) {
      if (share.generation->failed()) continue;
      share.generation->keep_prompt(*share.sequence, share.first_position);
      share.generation->settle(*share.sequence);
    }
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
      // The last token that may be written needs no guess: the step chooses it anyway.
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

void Engine::fetch_logits(const std::vector<Share>& shares) {
  logits_.clear();
  for (const Share& share : shares) {
    std::vector<RowSampling> choices;
    if (logits_.device_samples() && share.logits_rows > 0) {
      choices = share.generation->choices_on_device(*share.sequence, share.logits_rows);
    }
    logits_.want(share.logits_row, share.logits_rows, std::move(choices));
  }
  logits_.fetch();
}

void Engine::choose(const std::vector<Share>& shares) {
  std::vector<const Share*> beside, alone;
  for (const Share& share : shares) {
    if (share.logits_rows == 0) continue;
    (share.generation->calls_rules() ? alone : beside).push_back(&share);
  }
  std::vector<std::exception_ptr> failures(beside.size());
  const auto take = [&](const Share& share) {
    const auto want = static_cast<size_t>(&share - shares.data());
    if (const RowChoice* chosen = logits_.chosen(want)) {
      share.generation->take(*share.sequence, chosen, share.logits_rows);
    } else {
      share.generation->take(*share.sequence, share.first_logits_position(), logits_.rows(want),
                             share.logits_rows);
    }
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
  // Rules are the caller's code: they run one at a time, on this thread.
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
  const double time = now();
  for (const auto& generation : generations_) {
    try {
      generation->report(events, time);
    } catch (...) {
      generation->fail(std::current_exception());
      generation->report(events, time);
    }
  }
  for (Event& event : events) event.time = time;
  generations_.erase(std::remove_if(generations_.begin(), generations_.end(),
                                    [](const auto& g) { return g->failed() || g->finished(); }),
                     generations_.end());
  cache_.shed();
  return events;
}

void Engine::count(int64_t tokens, bool prefill) {
  (prefill ? stats_.prefill_tokens : stats_.decode_tokens) += tokens;
  stats_.kv_computations += tokens;
}

// This runs between two steps, so it can only take the places of requests.
void Engine::prepare(SequenceBlocks& place, int64_t end) {
  while (!cache_.prepare(place, end)) {
    if (scheduler_.preempt(generations_)) continue;
    cache_.refuse_tokens(end);
  }
}

template <typename Consume>
void Engine::read(const std::vector<int32_t>& token_ids, SequenceBlocks& place, bool wants_logits,
                  const Decoder::Poll& poll, const Consume& consume) {
  const auto tokens = static_cast<int64_t>(token_ids.size());
  while (place.computed() < tokens) {
    const int64_t first = place.computed();
    const int64_t chunk = std::min(scheduler_.step_tokens(), tokens - first);
    prepare(place, first + chunk);
    StepBatch batch;
    batch.token_ids.assign(token_ids.begin() + first, token_ids.begin() + first + chunk);
    batch.slices.push_back({0, chunk, first, place.blocks()});
    place.append_encodings(batch.encodings);
    for (int64_t row = 0; wants_logits && row < chunk; ++row) batch.logits_rows.push_back(row);
    decoder_.forward(batch, poll);
    count(chunk, true);
    place.advance(first + chunk);
    place.settle();
    consume(first, chunk);
  }
}

std::vector<float> Engine::logits(const std::vector<int32_t>& token_ids,
                                  const Decoder::Poll& poll) {
  check_tokens("token_ids", token_ids);
  const int64_t vocab_size = model_->spec.vocab_size;
  std::vector<float> all(token_ids.size() * static_cast<size_t>(vocab_size));
  SequenceBlocks place = cache_.empty_place();
  read(token_ids, place, true, poll, [&](int64_t first, int64_t rows) {
    decoder_.read_logits(0, rows, all.data() + first * vocab_size);
  });
  return all;
}

std::vector<double> Engine::score(const std::vector<int32_t>& token_ids,
                                  const Decoder::Poll& poll) {
  check_tokens("token_ids", token_ids);
  const auto tokens = static_cast<int64_t>(token_ids.size());
  const int64_t vocab_size = model_->spec.vocab_size;
  std::vector<double> scores;
  std::vector<float> logits(static_cast<size_t>(vocab_size));  // one row: a chunk takes megabytes
  SequenceBlocks place = cache_.empty_place();
  read(token_ids, place, true, poll, [&](int64_t first, int64_t rows) {
    for (int64_t row = 0; row < rows && first + row + 1 < tokens; ++row) {
      decoder_.read_logits(row, 1, logits.data());
      scores.push_back(log_probability(logits.data(), vocab_size, token_ids[first + row + 1]));
    }
  });
  return scores;
}

std::vector<StoredBlock> Engine::store_prefix(const std::vector<int32_t>& token_ids,
                                              const Decoder::Poll& poll) {
  check_tokens("token_ids", token_ids);
  const auto tokens = static_cast<int64_t>(token_ids.size());
  SequenceBlocks place = cache_.begin(token_ids, tokens);
  read(token_ids, place, false, poll, [](int64_t, int64_t) {});
  std::vector<StoredBlock> stored = read_blocks(cache_, place, tokens, *backend_);
  cache_.remember(token_ids, place, tokens);
  place.clear();
  cache_.shed();
  return stored;
}

void Engine::restore_prefix(const std::vector<int32_t>& token_ids,
                            const std::vector<StoredBlock>& blocks) {
  check_tokens("token_ids", token_ids);
  onward::restore_prefix(cache_, token_ids, blocks, *backend_,
                         [&] { return scheduler_.preempt(generations_); });
}

void Engine::forget_prefixes() {
  cache_.forget_all();
  if (draft_) draft_->trim();
}

EngineStats Engine::stats() const {
  EngineStats stats = stats_;
  stats.running = static_cast<int64_t>(generations_.size());
  for (const auto& generation : generations_) stats.waiting += generation->admitted ? 0 : 1;
  stats.preempted = scheduler_.preempted();
  stats.sampled_on_device = logits_.choices_made();
  stats.logits_rows_read = logits_.rows_read();
  stats.cache_blocks_in_use = cache_.blocks_in_use();
  for (int64_t group = 0; group < cache_.layout().num_groups(); ++group) {
    stats.cache_block_bytes += cache_.layout().exact_block_bytes(group);
  }
  stats.cache_bytes = budget_.used_bytes;
  stats.cache_bytes_reserved = cache_.store().bytes_reserved();
  stats.cache_bytes_limit = budget_.limit_bytes;
  stats.prefix_tokens = cache_.tree().tokens();
  stats.prefix_bytes = cache_.tree().bytes();
  stats.prefix_evictions = cache_.tree().evictions();
  stats.prefixes = cache_.prefix_stats();
  if (draft_) {
    stats.cache_blocks_in_use += draft_->cache().blocks_in_use();
    stats.cache_bytes_reserved += draft_->cache().store().bytes_reserved();
  }
  return stats;
}

}  // namespace onward
