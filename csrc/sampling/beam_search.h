// Beam search: which hypotheses stay live, which are finished, and when no better one is possible.
// The rules are the rules of transformers 4.57 to 5.24 (GenerationMixin._beam_search), for each
// group by itself.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "sampling/beam_options.h"
#include "sampling/logprobs.h"

namespace onward {

// A token that may follow a beam.
struct BeamCandidate {
  int32_t token = -1;
  double score = 0;  // its log-probability after the processors
  double rank = 0;   // order of the candidates: the score, or a perturbed score with sampling
  TokenLogprobs logprobs;
};

struct Hypothesis {
  double sum = 0;               // of its tokens' scores
  double score = 0;             // sum / length ^ length_penalty, if it is finished
  bool ended = false;           // by a stop token or a rule, not by its length
  std::vector<int32_t> output;  // without the prompt, with the stop token
  std::vector<TokenLogprobs> logprobs;
};

class BeamSearch {
 public:
  // Whether a stop token or a rule ends a candidate's output.
  using Ends = std::function<bool(const std::vector<int32_t>& output)>;

  // max_new_tokens: at least 1. with_logprobs: hypotheses keep the logprobs of their candidates.
  BeamSearch(const BeamOptions& options, int64_t stop_tokens, int64_t max_new_tokens,
             bool with_logprobs);

  // The number of live beams, ordered by group: one at the start, then up to num_beams.
  int64_t live() const;
  const Hypothesis& beam(int64_t index) const;

  // The number of candidates that a beam needs.
  int64_t candidates_wanted() const;
  // Sets the candidates of a live beam: the best candidates_wanted(), best rank first, or all.
  void consider(int64_t beam, std::vector<BeamCandidate> candidates);
  bool all_considered() const;

  // Takes the step. Returns the old beam that each new live beam continues by one token. If `ends`
  // throws, nothing has changed.
  std::vector<int64_t> select(const Ends& ends);

  bool finished() const;
  // The number of tokens with which every possible result begins, with the same log-probabilities
  // if these are kept.
  int64_t settled() const;
  // A hypothesis that begins with the settled tokens.
  const Hypothesis& leader() const;
  // The finished hypotheses, best first, at most num_return_sequences. None if every token of every
  // beam was banned.
  std::vector<Hypothesis> best() const;

 private:
  struct Group {
    std::vector<Hypothesis> live;                        // best first; none: the group has ended
    std::vector<std::vector<BeamCandidate>> candidates;  // of each live beam
    std::vector<uint8_t> considered;  // not bool, because threads set elements in parallel
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
  const Hypothesis* best_finished() const;  // nullptr: none yet
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
