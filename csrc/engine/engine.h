// The one loop that every caller drives: submit requests, step, read events, cancel. Each step is
// one ragged batch of sequences that decode and of prompts that are still being read. Not
// thread-safe: callers take turns (engine/shared_engine.h).
#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "cache/kv_cache.h"
#include "cache/stored_block.h"
#include "engine/generation.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "engine/speculation.h"
#include "engine/step_logits.h"
#include "model/decoder.h"

namespace onward {

struct EngineOptions {
  int64_t prefill_chunk_tokens = 256;  // tokens of one step at most, decodes included
  int64_t max_sequences = 256;         // sequences in the cache at a time; more requests wait
  int64_t max_context = 0;             // tokens of a sequence at most; 0: as many as the model's
  CacheFormat cache;
  int64_t cache_bytes = CacheBudget::kNoLimit;  // of keys and values, a draft model's included
  PrefixOptions prefixes;
};

class Engine {
 public:
  // draft: a smaller model of the same vocabulary that guesses tokens; may be null.
  Engine(std::shared_ptr<const Model> model, std::unique_ptr<Backend> backend,
         const EngineOptions& options, std::shared_ptr<const Model> draft = nullptr);

  // Takes a request and returns its id. InvalidArgument when it cannot be served.
  int64_t submit(Request request);

  // Runs one step and returns its events, in order of submission; nothing when there is nothing to
  // do. `poll` is called between the verbs of every layer and may throw to give the step up: then
  // no sequence has moved and the next step starts over. A request that fails ends with an error
  // event and leaves the others alone.
  std::vector<Event> step(const Decoder::Poll& poll);

  // Frees the request's place, or that of one of its sequences: no event of it follows. Unknown and
  // finished ones are ignored. Of a sequence: whether the request has ended with it.
  void cancel(int64_t request);
  bool cancel(int64_t request, int64_t sequence);
  void cancel_all();

  // Logits after every token: (token_ids, vocab_size), in chunks like any prompt.
  std::vector<float> logits(const std::vector<int32_t>& token_ids, const Decoder::Poll& poll);
  // Natural logarithms of the probabilities of token_ids[1..], each after those before it: one
  // prefill. NumericsError when a logit is not finite.
  std::vector<double> score(const std::vector<int32_t>& token_ids, const Decoder::Poll& poll);

  // Computes what is not kept of a prefix, keeps it, and gives out the blocks that a token after it
  // sees: the same bytes whatever came before.
  std::vector<StoredBlock> store_prefix(const std::vector<int32_t>& token_ids,
                                        const Decoder::Poll& poll);
  // Keeps a prefix that an engine of the same model and options has given out. InvalidArgument for
  // blocks that are not those of such a prefix, or where the cache does not hold them.
  void restore_prefix(const std::vector<int32_t>& token_ids,
                      const std::vector<StoredBlock>& blocks);
  void forget_prefixes();

  EngineStats stats() const;
  // Whether all requests have ended.
  bool idle() const { return generations_.empty(); }
  const Model& model() const { return *model_; }
  const std::shared_ptr<const Model>& shared_model() const { return model_; }
  // Tokens of a prompt and its output together.
  int64_t max_context() const { return max_context_; }
  const Backend& backend() const { return *backend_; }

 private:
  void check_tokens(const char* where, const std::vector<int32_t>& token_ids) const;
  void check(const Request& request) const;
  void check_fits(const Request& request) const;
  std::unique_ptr<Generation> make_generation(Request request);
  void guess(const Decoder::Poll& poll);
  // Of each share, in order: on the device or to the host.
  void fetch_logits(const std::vector<Share>& shares);
  // Hands the step's logits, or what was chosen from them, to those whose they are.
  void choose(const std::vector<Share>& shares);
  std::vector<Event> report();
  // The rest of a prefill, in chunks. consume(first, tokens) is called after each; where logits are
  // wanted, the decoder has those of the chunk's tokens, which begin at position `first`.
  template <typename Consume>
  void read(const std::vector<int32_t>& token_ids, CachePlace& place, bool wants_logits,
            const Decoder::Poll& poll, const Consume& consume);
  void prepare(CachePlace& place, int64_t end);
  void count(int64_t tokens, bool prefill);

  std::shared_ptr<const Model> model_;
  std::unique_ptr<Backend> backend_;
  Decoder decoder_;
  int64_t max_context_;
  CacheBudget budget_;
  KvCache cache_;
  std::unique_ptr<DraftModel> draft_;
  Scheduler scheduler_;
  StepLogits logits_;
  int64_t next_id_ = 0;
  std::vector<std::unique_ptr<Generation>> generations_;  // by id
  EngineStats stats_;
};

}  // namespace onward
