// The one loop that every caller drives: submit requests, step, read events, cancel. Each step is
// one ragged batch of sequences that decode and of prompts that are still being read. Not
// thread-safe: callers take turns (the Python side has the lock).
#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "cache/block_pool.h"
#include "engine/generation.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "engine/speculation.h"
#include "model/decoder.h"

namespace onward {

struct EngineOptions {
  int64_t prefill_chunk_tokens = 256;  // tokens of one step at most, decodes included
  int64_t max_sequences = 256;         // sequences in the cache at a time; more requests wait
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
  // finished ones are ignored.
  void cancel(int64_t request);
  void cancel(int64_t request, int64_t sequence);
  void cancel_all();

  // Logits after every token: (token_ids, vocab_size), in chunks like any prompt.
  std::vector<float> logits(const std::vector<int32_t>& token_ids, const Decoder::Poll& poll);
  // Natural logarithms of the probabilities of token_ids[1..], each after those before it: one
  // prefill. NumericsError when a logit is not finite.
  std::vector<double> score(const std::vector<int32_t>& token_ids, const Decoder::Poll& poll);

  EngineStats stats() const;
  const Model& model() const { return *model_; }
  const Backend& backend() const { return *backend_; }

 private:
  void check_tokens(const char* where, const std::vector<int32_t>& token_ids) const;
  void check(const Request& request) const;
  std::unique_ptr<Generation> make_generation(Request request);
  void guess(const Decoder::Poll& poll);
  // Hands the step's logits to those whose they are.
  void choose(const std::vector<Share>& shares);
  std::vector<Event> report();
  // One prefill in chunks, in a place of its own; consume(first, logits) gets the logits of a
  // chunk's tokens from position `first` on: (chunk tokens, vocab_size).
  template <typename Consume>
  void read(const std::vector<int32_t>& token_ids, const Decoder::Poll& poll,
            const Consume& consume);
  void count(int64_t tokens, bool prefill);

  std::shared_ptr<const Model> model_;
  std::unique_ptr<Backend> backend_;
  Decoder decoder_;
  BlockPool pool_;
  std::unique_ptr<DraftModel> draft_;
  Scheduler scheduler_;
  std::vector<float> logits_;  // (logits rows of the step, vocab_size)
  int64_t next_id_ = 0;
  std::vector<std::unique_ptr<Generation>> generations_;  // by id
  EngineStats stats_;
};

}  // namespace onward
