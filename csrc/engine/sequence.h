// A sequence of tokens in the engine: the tokens, its place in the cache and its sampler.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cache/kv_cache.h"
#include "sampling/sampler.h"

namespace onward {

class Sequence {
 public:
  // index: its number among the sequences of the request.
  Sequence(int64_t index, const std::vector<int32_t>& prompt, Sampler sampler, KvCache& cache)
      : sampler(std::move(sampler)),
        place(cache.empty_place()),
        index_(index),
        prompt_size_(static_cast<int64_t>(prompt.size())),
        tokens_(prompt) {}

  int64_t index() const { return index_; }
  void set_index(int64_t index) { index_ = index; }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t generated() const { return size() - prompt_size_; }

  // Tokens still to be computed, without guesses.
  int64_t pending() const { return size() - place.computed(); }
  bool decodes() const { return pending() == 1; }

  // Tokens of the next step from position `first` on: its own, then guesses.
  int32_t token_at(int64_t position) const {
    return position < size() ? tokens_[static_cast<size_t>(position)]
                             : guesses[static_cast<size_t>(position - size())];
  }

  void append(int32_t token) { tokens_.push_back(token); }

  // After guesses were checked: removes the positions of wrong ones, in the draft model's cache
  // too.
  void forget_wrong_guesses() {
    place.retreat(size() - 1);
    if (draft_place) draft_place->retreat(size() - 1);
  }

  // The first `count` tokens are a prefix worth keeping once they are computed.
  void keep_prefix_at(int64_t count) {
    if (std::find(keep_at.begin(), keep_at.end(), count) == keep_at.end()) keep_at.push_back(count);
  }

  // All tokens must be computed again, or found among the kept prefixes.
  void lose_place() {
    place.clear();
    draft_place.reset();
    guesses.clear();
    begun = false;
  }

  // A sequence with the same tokens that shares the cache.
  Sequence fork(int64_t index) const {
    Sequence twin(index, tokens_, sampler, place.fork());
    twin.begun = true;
    twin.prompt_size_ = prompt_size_;
    twin.last_turn = last_turn;
    return twin;
  }

  Sampler sampler;
  SequenceBlocks place;
  std::vector<int32_t> guesses;             // checked in the next step
  std::unique_ptr<SequenceBlocks> draft_place;  // in the draft model's cache
  bool begun = false;  // the place has the kept prefix, and grows from there
  std::vector<int64_t> keep_at;  // numbers of tokens at which its prefix is worth keeping
  int64_t last_turn = -1;        // the step in which all its tokens were last computed
  int64_t last_served = -1;      // the number of its last share

 private:
  Sequence(int64_t index, const std::vector<int32_t>& tokens, Sampler sampler, SequenceBlocks place)
      : sampler(std::move(sampler)), place(std::move(place)), index_(index), tokens_(tokens) {}

  int64_t index_;
  int64_t prompt_size_ = 0;
  std::vector<int32_t> tokens_;  // prompt, then output
};

}  // namespace onward
