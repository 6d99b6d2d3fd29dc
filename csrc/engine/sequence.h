// One request on its way through the engine: its tokens, its place in the cache, its sampler.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "cache/block_pool.h"
#include "engine/request.h"
#include "sampling/sampler.h"

namespace onward {

class Sequence {
 public:
  Sequence(int64_t id, Request request, int64_t vocab_size, int64_t max_context, BlockPool& pool)
      : id_(id),
        request_(std::move(request)),
        tokens_(request_.prompt),
        max_context_(max_context),
        sampler_(request_.sampling, vocab_size, request_.prompt),
        blocks_(pool) {}

  int64_t id() const { return id_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t computed() const { return computed_; }
  int64_t pending() const { return size() - computed_; }
  int64_t generated() const { return size() - static_cast<int64_t>(request_.prompt.size()); }
  bool full() const { return generated() >= request_.max_new_tokens || size() >= max_context_; }
  BlockTable& blocks() { return blocks_; }
  int64_t last_turn() const { return last_turn_; }
  void take_turn(int64_t turn) { last_turn_ = turn; }

  // The step's tokens are in the cache.
  void advance(int64_t tokens) { computed_ += tokens; }

  // Samples from the logits (vocab_size) of the last token; throws what Sampler::sample throws and
  // leaves the sequence as it was.
  Event sample(float* logits) {
    static const std::vector<int32_t> nothing;
    const bool too_short = generated() < request_.min_new_tokens;
    Event event;
    event.request = id_;
    event.token = sampler_.sample(logits, tokens_, too_short ? request_.stop_token_ids : nothing);
    tokens_.push_back(event.token);
    if (!request_.cache) computed_ = 0;
    const auto& stops = request_.stop_token_ids;
    if (std::find(stops.begin(), stops.end(), event.token) != stops.end()) {
      event.finish = FinishReason::stop;
    } else if (full()) {
      event.finish = FinishReason::length;
    }
    return event;
  }

 private:
  int64_t id_;
  Request request_;
  std::vector<int32_t> tokens_;  // prompt, then output
  int64_t computed_ = 0;         // positions whose keys and values are in the cache
  int64_t max_context_;
  int64_t last_turn_ = -1;  // the step in which it was last served
  Sampler sampler_;
  BlockTable blocks_;
};

}  // namespace onward
