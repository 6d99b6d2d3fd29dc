#include "sampling/beam_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace onward {
namespace {

// Two groups may have equal tokens with different log-probabilities, which are part of the result.
bool same_at(const Hypothesis& a, const Hypothesis& b, size_t i) {
  return a.output[i] == b.output[i] &&
         (a.logprobs.empty() || a.logprobs[i].chain == b.logprobs[i].chain);
}

}  // namespace

// A candidate of a live beam that is among the best of its group.
struct BeamSearch::Pick {
  int64_t beam;  // within the group
  const BeamCandidate* candidate;
  double score;  // of the candidate, less the diversity penalty
  double sum;    // of the hypothesis it makes
  double rank;
  size_t place;  // among the picks of the group, by rank
};

BeamSearch::BeamSearch(const BeamOptions& options, int64_t stop_tokens, int64_t max_new_tokens,
                       bool with_logprobs)
    : options_(options),
      stop_tokens_(stop_tokens),
      max_new_tokens_(max_new_tokens),
      with_logprobs_(with_logprobs),
      groups_(static_cast<size_t>(options.num_beam_groups)) {
  options_.validate();
  for (Group& group : groups_) {
    group.live.resize(1);
    group.candidates.resize(1);
    group.considered.resize(1);
  }
}

int64_t BeamSearch::live() const {
  size_t beams = 0;
  for (const Group& group : groups_) beams += group.live.size();
  return static_cast<int64_t>(beams);
}

const Hypothesis& BeamSearch::beam(int64_t index) const {
  size_t rest = static_cast<size_t>(index);
  for (const Group& group : groups_) {
    if (rest < group.live.size()) return group.live[rest];
    rest -= group.live.size();
  }
  throw Error("beam search: no live beam " + std::to_string(index));
}

int64_t BeamSearch::candidates_kept() const {
  return std::max<int64_t>(2, 1 + stop_tokens_) * group_size();
}

int64_t BeamSearch::candidates_wanted() const {
  // The diversity penalty may push as many down as there are beams in the earlier groups.
  return candidates_kept() + (groups_.size() > 1 ? options_.num_beams : 0);
}

void BeamSearch::consider(int64_t beam, std::vector<BeamCandidate> candidates) {
  size_t rest = static_cast<size_t>(beam);
  for (Group& group : groups_) {
    if (rest < group.live.size()) {
      group.candidates[rest] = std::move(candidates);
      group.considered[rest] = true;
      return;
    }
    rest -= group.live.size();
  }
}

bool BeamSearch::all_considered() const {
  return std::all_of(groups_.begin(), groups_.end(), [](const Group& group) {
    return std::find(group.considered.begin(), group.considered.end(), 0) == group.considered.end();
  });
}

std::vector<BeamSearch::Pick> BeamSearch::pick(
    const Group& group, const std::unordered_map<int32_t, int64_t>& taken) const {
  std::vector<Pick> picks;
  for (size_t beam = 0; beam < group.live.size(); ++beam) {
    for (const BeamCandidate& candidate : group.candidates[beam]) {
      const auto found = taken.find(candidate.token);
      const double penalty = found == taken.end()
                                 ? 0
                                 : options_.diversity_penalty * static_cast<double>(found->second);
      const double score = candidate.score - penalty;
      const double sum = group.live[beam].sum;
      picks.push_back({static_cast<int64_t>(beam), &candidate, score, sum + score,
                       sum + candidate.rank - penalty, 0});
    }
  }
  // Among equals: the lower beam, then the lower token.
  const auto before = [](const Pick& a, const Pick& b) {
    return a.beam != b.beam ? a.beam < b.beam : a.candidate->token < b.candidate->token;
  };
  std::sort(picks.begin(), picks.end(), [&](const Pick& a, const Pick& b) {
    return a.rank != b.rank ? a.rank > b.rank : before(a, b);
  });
  picks.resize(std::min(picks.size(), static_cast<size_t>(candidates_kept())));
  for (size_t place = 0; place < picks.size(); ++place) picks[place].place = place;
  std::sort(picks.begin(), picks.end(), [&](const Pick& a, const Pick& b) {
    return a.sum != b.sum ? a.sum > b.sum : before(a, b);
  });
  return picks;
}

std::vector<int64_t> BeamSearch::select(const Ends& ends) {
  std::vector<std::vector<Pick>> picks;        // of each group
  std::vector<std::vector<bool>> ended;        // of each pick
  std::unordered_map<int32_t, int64_t> taken;  // by the groups so far
  for (const Group& group : groups_) {
    picks.push_back(pick(group, taken));
    ended.emplace_back();
    int64_t live_on = 0;
    for (const Pick& pick : picks.back()) {
      std::vector<int32_t> output = group.live[static_cast<size_t>(pick.beam)].output;
      output.push_back(pick.candidate->token);
      ended.back().push_back(ends(output));
      if (!ended.back().back() && live_on++ < group_size()) ++taken[pick.candidate->token];
    }
  }

  std::vector<int64_t> parents;
  int64_t first = 0;  // beam of the group
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    const int64_t beams = static_cast<int64_t>(group.live.size());
    if (beams > 0) take(group, picks[g], ended[g]);
    size_t live_on = 0;
    for (size_t rank = 0; live_on < group.live.size(); ++rank) {
      if (ended[g][rank]) continue;
      parents.push_back(first + picks[g][rank].beam);
      ++live_on;
    }
    first += beams;
  }
  for (Group& group : groups_) {
    group.candidates.assign(group.live.size(), {});
    group.considered.assign(group.live.size(), false);
  }
  ++length_;
  return parents;
}

Hypothesis BeamSearch::extend(const Group& group, const Pick& pick) const {
  Hypothesis longer = group.live[static_cast<size_t>(pick.beam)];
  longer.sum = pick.sum;
  longer.output.push_back(pick.candidate->token);
  if (with_logprobs_) {
    longer.logprobs.push_back(pick.candidate->logprobs);
    longer.logprobs.back().chain = pick.score;
  }
  return longer;
}

double BeamSearch::score(double sum, int64_t length) const {
  if (sum == 0) return 0;  // for every power: the divisor may be 0 or infinite
  const double score = sum / std::pow(static_cast<double>(length), options_.length_penalty);
  return std::isnan(score) ? sum : score;
}

void BeamSearch::take(Group& group, const std::vector<Pick>& picks,
                      const std::vector<bool>& ended) {
  const size_t size = static_cast<size_t>(group_size());
  const int64_t length = length_ + 1;
  const bool at_limit = length >= max_new_tokens_;
  std::vector<Hypothesis> live;
  for (size_t rank = 0; rank < picks.size(); ++rank) {
    if (ended[rank] || at_limit) {
      // Only the best candidates of a step can finish; with sampling, the first ones drawn.
      if (picks[rank].place >= size) continue;
      Hypothesis finished = extend(group, picks[rank]);
      finished.ended = ended[rank];
      finished.score = score(finished.sum, length);
      admit(group, std::move(finished));
    } else if (live.size() < size) {
      live.push_back(extend(group, picks[rank]));
    }
  }
  group.live = std::move(live);
  if (!may_improve(group, length)) group.live.clear();
}

bool BeamSearch::may_improve(const Group& group, int64_t length) const {
  if (group.live.empty()) return false;
  if (group.pool.size() < static_cast<size_t>(group_size())) return true;
  if (options_.early_stopping == EarlyStopping::full) return false;
  const bool longest =
      options_.early_stopping == EarlyStopping::never && options_.length_penalty > 0;
  const double best = score(group.live.front().sum, longest ? max_new_tokens_ : length);
  return best > group.pool.back().score;
}

void BeamSearch::admit(Group& group, Hypothesis hypothesis) const {
  const auto worse = [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; };
  const auto place = std::upper_bound(group.pool.begin(), group.pool.end(), hypothesis,
                                      worse);  // after its equals
  group.pool.insert(place, std::move(hypothesis));
  if (group.pool.size() > static_cast<size_t>(group_size())) group.pool.pop_back();
}

bool BeamSearch::finished() const { return live() == 0; }

const Hypothesis* BeamSearch::best_finished() const {
  const Hypothesis* best = nullptr;
  for (const Group& group : groups_) {
    if (group.pool.empty()) continue;
    if (best == nullptr || group.pool.front().score > best->score) best = &group.pool.front();
  }
  return best;
}

const Hypothesis& BeamSearch::leader() const {
  for (const Group& group : groups_) {
    if (!group.live.empty()) return group.live.front();
  }
  static const Hypothesis none;
  const Hypothesis* best = best_finished();
  return best == nullptr ? none : *best;
}

int64_t BeamSearch::settled() const {
  const Hypothesis& first = leader();
  size_t common = first.output.size();
  const auto compare = [&](const Hypothesis& other) {
    const size_t size = std::min(common, other.output.size());
    common = 0;
    while (common < size && same_at(first, other, common)) ++common;
  };
  for (const Group& group : groups_) {
    for (const Hypothesis& beam : group.live) compare(beam);
  }
  // Only the best of the finished hypotheses can still be the result.
  if (const Hypothesis* best = best_finished()) compare(*best);
  return static_cast<int64_t>(common);
}

std::vector<Hypothesis> BeamSearch::best() const {
  std::vector<Hypothesis> all;
  for (const Group& group : groups_) all.insert(all.end(), group.pool.begin(), group.pool.end());
  std::stable_sort(all.begin(), all.end(),
                   [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  if (all.size() > static_cast<size_t>(options_.num_return_sequences)) {
    all.resize(static_cast<size_t>(options_.num_return_sequences));
  }
  return all;
}

}  // namespace onward
