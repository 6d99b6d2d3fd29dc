// Interfaces of rules that the caller wrote. The sampler and the engine call them.
#pragma once

#include <cstdint>
#include <vector>

namespace onward {

// Changes scores in any way; kBanned (scores.h) bans a token.
class ScoreRule {
 public:
  virtual ~ScoreRule() = default;
  // tokens: prompt, then output; scores: (vocab_size).
  virtual void change(const std::vector<int32_t>& tokens, float* scores, int64_t vocab_size) = 0;
};

// Decides when an output is complete.
class EndRule {
 public:
  virtual ~EndRule() = default;
  // tokens: prompt, then output.
  virtual bool ends(const std::vector<int32_t>& tokens) = 0;
};

}  // namespace onward
