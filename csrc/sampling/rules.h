// Rules that the caller wrote. The sampler and the engine call them; what they do is not known
// here.
#pragma once

#include <cstdint>
#include <vector>

namespace onward {

// Changes scores as it sees fit; kBanned (scores.h) bans a token.
class ScoreRule {
 public:
  virtual ~ScoreRule() = default;
  // tokens: prompt, then output; scores: (vocab_size).
  virtual void change(const std::vector<int32_t>& tokens, float* scores, int64_t vocab_size) = 0;
};

// Says when an output is at its end.
class EndRule {
 public:
  virtual ~EndRule() = default;
  // tokens: prompt, then output, the token chosen last included.
  virtual bool ends(const std::vector<int32_t>& tokens) = 0;
};

}  // namespace onward
