#include "engine/beam_generation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/philox.h"
#include "sampling/best_tokens.h"
#include "sampling/log_probability.h"

namespace onward {
namespace {

// Standard Gumbel noise for one token of one beam, from a random number that no other draw uses.
// The best k of log p + noise are k draws without replacement from p (Kool et al. 2019).
double gumbel(const Sampler& sampler, uint64_t step, uint64_t beam_and_token) {
  const uint64_t counter = step | (beam_and_token + 1) << 32;
  const double uniform = philox_uniform(sampler.options().seed, sampler.stream(), counter);
  return -std::log(-std::log(uniform + 0x1p-54));
}

}  // namespace

BeamGeneration::BeamGeneration(int64_t id, Request request, int64_t vocab_size, int64_t max_context,
                               KvCache& cache)
    : Generation(id, std::move(request), vocab_size, max_context, cache),
      search_(*this->request().beams,
              static_cast<int64_t>(this->request().sampling.stop_token_ids.size()), room(),
              this->request().sampling.logprobs >= 0) {
  sequences_.push_back(new_sequence(0));
  considered_.resize(1);
}

std::vector<Sequence*> BeamGeneration::sequences() {
  std::vector<Sequence*> active;
  for (size_t beam = 0; beam < sequences_.size(); ++beam) {
    if (!considered_[beam]) active.push_back(sequences_[beam].get());
  }
  return active;
}

std::vector<Sequence*> BeamGeneration::all_sequences() {
  std::vector<Sequence*> all;
  for (const auto& sequence : sequences_) all.push_back(sequence.get());
  return all;
}

void BeamGeneration::keep_prefixes() {
  for (const Sequence* sequence : all_sequences()) keep(*sequence);
}

void BeamGeneration::choose(Sequence& sequence, float* logits, int64_t) {
  require_finite(logits, vocab_size_);
  log_softmax(logits, vocab_size_);
  const int64_t wanted = sequence.sampler.options().logprobs;
  std::vector<float> raw;
  if (wanted >= 0) raw.assign(logits, logits + vocab_size_);
  sequence.sampler.process(logits, sequence.tokens());
  const std::vector<BeamCandidate> left =
      left_by_chain(sequence, logits, std::max(search_.candidates_wanted(), wanted));
  std::vector<ScoredToken> raw_top, chain_top;
  if (wanted >= 0) {
    raw_top = best_tokens(raw.data(), vocab_size_, wanted);
    for (size_t i = 0; i < std::min(left.size(), static_cast<size_t>(wanted)); ++i) {
      chain_top.push_back({left[i].token, static_cast<float>(left[i].score)});
    }
  }
  // Every group begins with the prompt and has its own random numbers.
  const int64_t twins = sequence.generated() == 0 ? search_.live() : 1;
  for (int64_t beam = sequence.index(); beam < sequence.index() + twins; ++beam) {
    std::vector<BeamCandidate> found = candidates(sequence, left, beam);
    for (BeamCandidate& candidate : found) {
      if (wanted < 0) break;
      candidate.logprobs = {candidate.token, raw[static_cast<size_t>(candidate.token)],
                            candidate.score, raw_top, chain_top};
    }
    search_.consider(beam, std::move(found));
  }
  considered_[static_cast<size_t>(sequence.index())] = true;
}

std::vector<BeamCandidate> BeamGeneration::left_by_chain(const Sequence& sequence,
                                                         const float* scores, int64_t most) const {
  const double temperature = sequence.sampler.options().temperature;
  std::vector<BeamCandidate> left;
  if (temperature == 0) {
    for (const ScoredToken& token : best_tokens(scores, vocab_size_, most)) {
      left.push_back({token.id, token.score, token.score, {}});
    }
    return left;
  }
  const int64_t best = first_largest(scores, vocab_size_);
  if (best < 0) return left;
  const Candidates& kept = sequence.sampler.candidates(scores, scores[best],
                                                       static_cast<uint64_t>(sequence.generated()));
  for (const ScoredToken& token : best_candidates(kept, kept.size())) {
    // Not normalised after the filters, as in transformers.
    const double score = scores[token.id] / temperature;
    left.push_back({token.id, score, score, {}});
  }
  return left;
}

std::vector<BeamCandidate> BeamGeneration::candidates(const Sequence& sequence,
                                                      std::vector<BeamCandidate> left,
                                                      int64_t beam) const {
  if (sequence.sampler.options().temperature > 0) {
    const uint64_t step = static_cast<uint64_t>(sequence.generated());
    for (BeamCandidate& candidate : left) {
      const uint64_t place = static_cast<uint64_t>(beam * vocab_size_ + candidate.token);
      candidate.rank = candidate.score + gumbel(sequence.sampler, step, place);
    }
    std::stable_sort(left.begin(), left.end(), [](const BeamCandidate& a, const BeamCandidate& b) {
      return a.rank > b.rank;
    });
  }
  left.resize(std::min(left.size(), static_cast<size_t>(search_.candidates_wanted())));
  return left;
}

void BeamGeneration::tell(std::vector<Event>& events) {
  if (!search_.all_considered()) return;
  const std::vector<int32_t>& prompt = request().prompt;
  const auto parents = search_.select([&](const std::vector<int32_t>& output) {
    if (is_stop_token(output.back())) return true;
    if (request().end_rules.empty()) return false;
    std::vector<int32_t> tokens = prompt;
    tokens.insert(tokens.end(), output.begin(), output.end());
    return ends_by_rule(tokens);
  });
  if (search_.finished()) {
    tell_results(events);
  } else {
    continue_beams(parents);
    tell_settled(events);
  }
}

void BeamGeneration::continue_beams(const std::vector<int64_t>& parents) {
  std::vector<std::unique_ptr<Sequence>> next;
  std::vector<int64_t> children(std::max<size_t>(sequences_.size(), 1));
  const bool first = sequences_.size() == 1;  // the beams of all groups continue it
  const auto parent_of = [&](size_t beam) {
    return first ? size_t{0} : static_cast<size_t>(parents[beam]);
  };
  for (size_t beam = 0; beam < parents.size(); ++beam) ++children[parent_of(beam)];
  for (size_t beam = 0; beam < parents.size(); ++beam) {
    const size_t parent = parent_of(beam);
    // The last child takes its parent's sequence, the others get forks of it.
    const int64_t index = static_cast<int64_t>(beam);
    if (--children[parent] > 0) {
      next.push_back(std::make_unique<Sequence>(sequences_[parent]->fork(index)));
    } else {
      next.push_back(std::move(sequences_[parent]));
      next.back()->set_index(index);
    }
    const int32_t token = search_.beam(index).output.back();
    next.back()->append(token);
    if (!request().cache) next.back()->place.clear();
    next.back()->sampler.remember(token);
  }
  sequences_ = std::move(next);
  considered_.assign(sequences_.size(), false);
}

void BeamGeneration::tell_settled(std::vector<Event>& events) {
  const int64_t settled = search_.settled();
  for (; told_ < settled; ++told_) {
    const Hypothesis& leader = search_.leader();
    Event next = event(0);
    next.token = leader.output[static_cast<size_t>(told_)];
    if (!leader.logprobs.empty()) next.logprobs = leader.logprobs[static_cast<size_t>(told_)];
    events.push_back(std::move(next));
  }
}

void BeamGeneration::tell_results(std::vector<Event>& events) {
  const std::vector<Hypothesis> results = search_.best();
  if (results.empty()) {
    throw InvalidArgument(
        "beam search: every token of every beam is masked, expected at least one that may follow");
  }
  keep_prefixes();
  sequences_.clear();
  finished_ = true;
  for (size_t rank = 0; rank < results.size(); ++rank) {
    const Hypothesis& result = results[rank];
    for (size_t i = rank == 0 ? static_cast<size_t>(told_) : 0; i < result.output.size(); ++i) {
      Event next = event(static_cast<int64_t>(rank));
      next.token = result.output[i];
      if (!result.logprobs.empty()) next.logprobs = result.logprobs[i];
      if (i + 1 == result.output.size()) {
        next.finish = result.ended ? FinishReason::stop : FinishReason::length;
        next.score = result.score;
      }
      events.push_back(std::move(next));
    }
  }
  events.back().ends_request = true;
}

}  // namespace onward
