// Guesses of next tokens, from the text so far or from a smaller model. Each guess is checked
// against the token that is chosen, so guesses change the time that an output takes, and never the
// output.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "cache/kv_cache.h"
#include "engine/sequence.h"
#include "engine/step_logits.h"
#include "model/decoder.h"

namespace onward {

// Prompt lookup (Saxena 2023): finds the longest run of at most `ngram` last tokens that occurred
// before, at its most recent place, and returns the `count` tokens that followed it there. If fewer
// than `count` tokens follow, they are repeated. Empty if there is no such run.
std::vector<int32_t> look_up(const std::vector<int32_t>& tokens, int64_t ngram, int64_t count);

// A smaller model of the same vocabulary that continues a sequence (Leviathan et al. 2023). It
// chooses with the options and the random numbers of the sequence, so it guesses right where its
// distribution is like that of the large model.
class DraftModel {
 public:
  DraftModel(std::shared_ptr<const Model> model, Backend& backend, int64_t step_tokens,
             CacheBudget& budget);

  struct Wish {
    Sequence* sequence;
    int64_t guesses;
  };
  // Fills in the guesses of each sequence. A sequence gets none where the cache has no room, or
  // where the poll throws.
  void guess(const std::vector<Wish>& wishes, const Decoder::Poll& poll);

  const Model& model() const { return *model_; }
  const KvCache& cache() const { return cache_; }
  void trim() { cache_.forget_all(); }  // frees all memory that no sequence holds

 private:
  struct Writer;
  // Computes the tokens that a writer has not read yet, except the last one.
  void catch_up(Writer& writer, const Decoder::Poll& poll);

  std::shared_ptr<const Model> model_;
  Backend& backend_;
  Decoder decoder_;
  KvCache cache_;
  StepLogits logits_;
  int64_t step_tokens_;
};

}  // namespace onward
