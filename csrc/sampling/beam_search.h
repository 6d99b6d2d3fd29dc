// Beam search: which hypotheses live on, which are finished, and when no better one can come. The
// rule is that of transformers 4.57 to 5.24 (GenerationMixin._beam_search), each group by itself.
// Knows log-probabilities and tokens; not where they come from, nor what a beam holds in the cache.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "sampling/logprobs.h"

namespace onward {

enum class EarlyStopping : uint8_t {
  heuristic,  // false: when the best live beam, at its present length, is no better than the worst
  full,       // true: when there are as many finished hypotheses as beams
  never,      // "never": like false, at the length that is best for it
};

struct BeamOptions {
  int64_t num_beams = 1;  // in all groups together
  int64_t num_beam_groups = 1;
  double diversity_penalty = 0;  // off a token, for each beam of an earlier group that took it
  double length_penalty = 1;     // a score is the sum of log-probabilities / length ^ this
  EarlyStopping early_stopping = EarlyStopping::heuristic;
  int64_t num_return_sequences = 1;

  // InvalidArgument naming the option.
  void validate() const;
};

// A token that may follow a beam.
struct BeamCandidate {
  int32_t token = -1;
  double score = 0;  // its log-probability after the processors
  double rank = 0;   // what candidates are picked by: the score, or with sampling a perturbed one
  TokenLogprobs logprobs;
};

struct Hypothesis {
  double sum = 0;               // of the scores of its tokens
  double score = 0;             // sum / length ^ length_penalty, once it is finished
  bool ended = false;           // by a stop token or a rule, not by its length
  std::vector<int32_t> output;  // without the prompt, with the stop token
  std::vector<TokenLogprobs> logprobs;
};

class BeamSearch {
 public:
  // Whether a candidate's output is at its end by a stop token or a rule.
  using Ends = std::function<bool(const std::vector<int32_t>& output)>;

  // max_new_tokens: at least 1. with_logprobs: hypotheses keep those of their candidates.
  BeamSearch(const BeamOptions& options, int64_t stop_tokens, int64_t max_new_tokens,
             bool with_logprobs);

  // The live beams, those of the first group first: one at the start, then up to num_beams.
  int64_t live() const;
  const Hypothesis& beam(int64_t index) const;

  // How many candidates of a beam are enough.
  int64_t candidates_wanted() const;
  // What may follow a live beam: the best so many, best rank first; fewer if there are no more.
  void consider(int64_t beam, std::vector<BeamCandidate> candidates);
  bool all_considered() const;

  // Takes the step. Returns, for each new live beam, the old one that it continues; its output has
  // one token more. `ends` may throw: then nothing has moved.
  std::vector<int64_t> select(const Ends& ends);

  bool finished() const;
  // The number of tokens with which every result that is still possible begins, each with the same
  // log-probabilities where those are kept.
  int64_t settled() const;
  // Some hypothesis that begins with the settled tokens.
  const Hypothesis& leader() const;
  // The finished hypotheses, best first, num_return_sequences at most. Fewer where the rules left
  // fewer; none when every token of every beam was banned.
  std::vector<Hypothesis> best() const;

 private:
  struct Group {
    std::vector<Hypothesis> live;                        // best first; none: the group is done
    std::vector<std::vector<BeamCandidate>> candidates;  // of each live beam
    std::vector<uint8_t> considered;  // not bool: beams are considered side by side
    std::vector<Hypothesis> pool;     // finished, best first
  };
  struct Pick;
  std::vector<Pick> pick(const Group& group,
                         const std::unordered_map<int32_t, int64_t>& taken) const;
  Hypothesis extend(const Group& group, const Pick& pick) const;
  void take(Group& group, const std::vector<Pick>& picks, const std::vector<bool>& ended);
  double score(double sum, int64_t length) const;  // never NaN
  // Whether a live beam can still enter the pool.
  bool may_improve(const Group& group, int64_t length) const;
  void admit(Group& group, Hypothesis hypothesis) const;
  const Hypothesis* best_finished() const;  // nullptr: there is none yet
  int64_t group_size() const { return options_.num_beams / options_.num_beam_groups; }
  int64_t candidates_kept() const;

  BeamOptions options_;
  int64_t stop_tokens_;
  int64_t max_new_tokens_;
  bool with_logprobs_;
  int64_t length_ = 0;  // of every live beam's output
  std::vector<Group> groups_;
};

}  // namespace onward
