// Where guesses come from: the text so far, or a smaller model. What is guessed changes only the
// time that an output takes, never the output, since each guess is checked against the choice.
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

// Prompt lookup (Saxena 2023): what followed the last tokens where they came before, most recently;
// the longest run of at most `ngram` last tokens that did come before. Where that is nearer than
// `count` tokens, what lies between goes round and round. `count` tokens, or none.
std::vector<int32_t> look_up(const std::vector<int32_t>& tokens, int64_t ngram, int64_t count);

// A smaller model of the same vocabulary that writes on where a sequence stands (Leviathan et al.
// 2023). It chooses by the sequence's own options and random numbers, so that it guesses right
// where its distribution is like the other's.
class DraftModel {
 public:
  DraftModel(std::shared_ptr<const Model> model, Backend& backend, int64_t step_tokens,
             CacheBudget& budget);

  struct Wish {
    Sequence* sequence;
    int64_t guesses;
  };
  // Fills in the guesses of each sequence, of none that the cache has no room for. A poll that
  // throws leaves them without.
  void guess(const std::vector<Wish>& wishes, const Decoder::Poll& poll);

  const Model& model() const { return *model_; }
  const KvCache& cache() const { return cache_; }
  void trim() { cache_.forget_all(); }  // keeps no memory but what sequences hold

 private:
  struct Writer;
  // Computes all but the last token of what a writer has not read yet.
  void catch_up(Writer& writer, const Decoder::Poll& poll);

  std::shared_ptr<const Model> model_;
  Backend& backend_;
  Decoder decoder_;
  KvCache cache_;
  StepLogits logits_;
  int64_t step_tokens_;
};

}  // namespace onward
