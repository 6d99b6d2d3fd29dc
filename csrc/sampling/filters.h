// Filters of the sampling chain, over a shrinking list of candidates, each on what the one before
// it left. Rules are Hugging Face's where it has one. Each keeps at least one candidate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sampling/log_probability.h"

namespace onward {

// Tokens still in the draw. `score` is (logit - largest logit) / temperature, so the best is 0 and
// exp(score) never overflows.
struct Candidates {
  std::vector<int32_t> id;
  std::vector<float> score;

  size_t size() const { return id.size(); }
};

// All tokens with a finite score, in order of id. temperature > 0, however small.
Candidates scaled_candidates(const float* logits, int64_t vocab_size, float largest,
                             double temperature);

// Divides the scores; what falls to -infinity is dropped.
void scale(Candidates& candidates, double temperature);

// Sum of exp(score).
double total_weight(const Candidates& candidates);

// In nats, of the candidates' probabilities.
double entropy(const Candidates& candidates);

// Keeps candidates whose logit is within n standard deviations (of all candidates) of the best
// (Tang et al. 2024); 0 is off. The temperature makes no difference to it.
void keep_top_n_sigma(Candidates& candidates, double n);

// Keeps every candidate that is no worse than the k-th best: ties with it stay.
void keep_top_k(Candidates& candidates, int64_t k);

// Nucleus (Holtzman et al. 2020): the smallest set of best candidates whose probabilities reach p;
// the one that crosses p stays. Reaching p counts at float32 resolution (probabilities .5, .3, .2
// and p = .8 keep two, although their float32 sum may differ from .8 in the last digit).
void keep_top_p(Candidates& candidates, double p);

// Keeps candidates with a probability of at least min_p times that of the best one.
void keep_min_p(Candidates& candidates, double min_p);

// Locally typical (Meister et al. 2023): those whose surprise is closest to the entropy, until
// their probabilities reach p; ties with the last stay. 1 is off.
void keep_typical(Candidates& candidates, double p);

// Keeps candidates with a probability of at least this, and always the best and its ties.
void keep_probable(Candidates& candidates, double probability);

// keep_probable with min(epsilon, sqrt(epsilon) * exp(-entropy)) (Hewitt et al. 2022); 0 is off.
void keep_eta(Candidates& candidates, double epsilon);

// Exclude top choices: of the candidates that reach the threshold, drops all but the least likely
// (of equals, all but the highest id).
void drop_top_choices(Candidates& candidates, double threshold);

// Of the candidates alone, which sum to 1; -infinity for a token that is none.
double log_probability_of(const Candidates& candidates, int32_t token);
// Best first, of equals the lower id, with such log-probabilities.
std::vector<ScoredToken> best_candidates(const Candidates& candidates, int64_t k);

// Inverse transform over the candidates in order of id; uniform in [0, 1).
int32_t draw(const Candidates& candidates, double uniform);

}  // namespace onward
