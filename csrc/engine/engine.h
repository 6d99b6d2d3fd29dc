// The engine's loop: submit requests, step, read events, cancel. Each step is one ragged batch of
// sequences that decode and of prompts that are still being read. Not thread-safe: callers take
// turns (engine/shared_engine.h).
#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "cache/kv_cache.h"
#include "cache/prefix_snapshot.h"
#include "engine/generation.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "engine/speculation.h"
#include "engine/step_logits.h"
#include "model/decoder.h"

namespace onward {

struct EngineOptions {
  int64_t prefill_chunk_tokens = 256;  // the most tokens of one step, decodes included
  int64_t max_sequences = 256;         // the most sequences in the cache; more requests wait
  int64_t max_context = 0;             // the most tokens of a sequence; 0: the model's context
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

  // Runs one step and returns its events in the order of submission; none where there is nothing to
  // do. `poll` is called between the verbs of every layer and may throw to abandon the step: then
  // no sequence has moved, and the next step starts over. A request that fails ends with an error
  // event; other requests are not affected.
  std::vector<Event> step(const Decoder::Poll& poll);

  // Removes a request, or one of its sequences: no event of it follows. Unknown and finished ones
  // are ignored. For a sequence: whether the request has ended with it.
  void cancel(int64_t request);
  bool cancel(int64_t request, int64_t sequence);
  void cancel_all();

  // Logits after every token: (token_ids, vocab_size), in chunks like any prompt.
  std::vector<float> logits(const std::vector<int32_t>& token_ids, const Decoder::Poll& poll);
  // Natural logarithms of the probabilities of token_ids[1..], each given the tokens before it, in
  // one prefill. NumericsError when a logit is not finite.
  std::vector<double> score(const std::vector<int32_t>& token_ids, const Decoder::Poll& poll);

  // Computes a prefix where it is not kept, keeps it, and returns the blocks that a token after it
  // sees. The bytes depend on nothing but the prefix.
  std::vector<StoredBlock> store_prefix(const std::vector<int32_t>& token_ids,
                                        const Decoder::Poll& poll);
  // Keeps a prefix that store_prefix() of an engine with the same model and options returned.
  // InvalidArgument: a block does not fit. NotCached: blocks are absent, or there is no room.
  void restore_prefix(const std::vector<int32_t>& token_ids,
                      const std::vector<StoredBlock>& blocks);
  void forget_prefixes();

  EngineStats stats() const;
  // Whether all requests have ended.
  bool idle() const { return generations_.empty(); }
  const Model& model() const { return *model_; }
  const std::shared_ptr<const Model>& shared_model() const { return model_; }
  // The most tokens of a prompt and its output together.
  int64_t max_context() const { return max_context_; }
  const Backend& backend() const { return *backend_; }

 private:
  void check_tokens(const char* where, const std::vector<int32_t>& token_ids) const;
  void check(const Request& request) const;
  void check_fits(const Request& request) const;
  std::unique_ptr<Generation> make_generation(Request request);
  void guess(const Decoder::Poll& poll);
  // The logits of each share in order, chosen from on the device or copied to the host.
  void fetch_logits(const std::vector<Share>& shares);
  // Passes the step's logits, or the device's choices, to the generations that own them.
  void choose(const std::vector<Share>& shares);
  std::vector<Event> report();
  // Computes the rest of a prompt in chunks. consume(first, tokens) is called after each chunk,
  // which begins at position `first`; the decoder then has its logits, if they are wanted.
  template <typename Consume>
  void read(const std::vector<int32_t>& token_ids, SequenceBlocks& place, bool wants_logits,
            const Decoder::Poll& poll, const Consume& consume);
  void prepare(SequenceBlocks& place, int64_t end);
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
