// Filters of the sampling chain. Each works on the candidates that the previous one kept, and keeps
// at least one. They follow Hugging Face transformers wherever it has the filter.
#pragma once

#include <cstdint>
#include <vector>

#include "sampling/best_tokens.h"
#include "sampling/candidates.h"

namespace onward {

// Divides the scores by a temperature > 0, however small.
void scale(Candidates& candidates, double temperature);

// The entropy of the candidates' probabilities, in nats.
double entropy(const Candidates& candidates);

// Keeps candidates whose logit is within n standard deviations (of all candidates) of the best
// (Tang et al. 2024); 0 is off. The temperature does not change the result.
void keep_top_n_sigma(Candidates& candidates, double n);

// Keeps every candidate that is no worse than the k-th best: ties with it stay.
void keep_top_k(Candidates& candidates, int64_t k);

// Nucleus (Holtzman et al. 2020): the smallest set of best candidates whose probabilities reach p;
// the one that crosses p stays. Sums are compared with p at float32 resolution: probabilities .5,
// .3, .2 and p = .8 keep two, although their float32 sum may differ from .8 in the last digit.
void keep_top_p(Candidates& candidates, double p);

// Keeps candidates with a probability of at least min_p times that of the best one.
void keep_min_p(Candidates& candidates, double min_p);

// Locally typical sampling (Meister et al. 2023): the candidates whose surprise is nearest to the
// entropy, until their probabilities reach p; ties with the last one stay, at float32 resolution.
// 1 is off.
void keep_typical(Candidates& candidates, double p);

// Keeps candidates with a probability of at least this, and always the best and its ties.
void keep_probable(Candidates& candidates, double probability);

// keep_probable with min(epsilon, sqrt(epsilon) * exp(-entropy)) (Hewitt et al. 2022); 0 is off.
void keep_eta(Candidates& candidates, double epsilon);

// XTC, exclude top choices: of the candidates that reach the threshold, drops all but the least
// likely (among equals, all but the highest id).
void drop_top_choices(Candidates& candidates, double threshold);

// Inverse transform over the candidates in order of id; uniform in [0, 1).
int32_t draw(const Candidates& candidates, double uniform);

// Natural logarithm of a token's probability among the candidates; -infinity for a removed token.
double log_probability_of(const Candidates& candidates, int32_t token);

// The k most likely candidates, best first, among equals the lower id first. Scores are natural
// logarithms of probabilities. For small k.
std::vector<ScoredToken> best_candidates(const Candidates& candidates, int64_t k);

}  // namespace onward
