#include "sampling/filters.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/row_sampling.h"
#include "backend/row_scans.h"
#include "base/philox.h"
#include "sampling/dynamic_temperature.h"
#include "sampling/stage.h"

namespace onward {

void scale(Candidates& candidates, double temperature) {
  if (temperature == 1) return;
  candidates.change_scores([&](float* scores, int64_t size, float best) {
    return row_scans().rescale(scores, best, inverse_of(temperature), size, scores);
  });
}

double entropy(const Candidates& candidates) {
  const double weighted =
      row_scans().dot(candidates.weights(), candidates.scores(), candidates.size());
  return std::log(candidates.total_weight()) - weighted / candidates.total_weight();
}

void keep_top_n_sigma(Candidates& candidates, double n) {
  if (n <= 0.0 || candidates.size() <= 1) return;
  const float* score = candidates.scores();
  const double size = static_cast<double>(candidates.size());
  constexpr float kAll = -std::numeric_limits<float>::infinity();
  const double mean = row_scans().sum_at_least(score, score, kAll, candidates.size()) / size;
  // The best score is near 0 and far above the mean, so the difference loses few digits.
  const double variance = row_scans().dot(score, score, candidates.size()) / size - mean * mean;
  candidates.keep_at_least(candidates.best() - n * std::sqrt(std::max(0.0, variance)));
}

void keep_top_k(Candidates& candidates, int64_t k) {
  if (k > 0 && k < candidates.size()) candidates.keep_best(k);
}

void keep_top_p(Candidates& candidates, double p) {
  if (p >= 1.0 || candidates.size() <= 1) return;
  candidates.keep_best_by_mass((p - kFloat32Resolution) * candidates.total_weight());
}

void keep_min_p(Candidates& candidates, double min_p) {
  if (min_p > 0.0) candidates.keep_at_least(candidates.best() + std::log(min_p));
}

void keep_typical(Candidates& candidates, double p) {
  if (p >= 1.0 || candidates.size() <= 1) return;
  // A surprise is log(total) - score: equal to the entropy where the score is this.
  const double centre = std::log(candidates.total_weight()) - entropy(candidates);
  candidates.keep_nearest_by_mass(static_cast<float>(centre),
                                  (p - kFloat32Resolution) * candidates.total_weight());
}

void keep_probable(Candidates& candidates, double probability) {
  if (probability <= 0.0) return;
  candidates.keep_at_least(std::log(probability * candidates.total_weight()));
}

void keep_eta(Candidates& candidates, double epsilon) {
  if (epsilon <= 0.0) return;
  keep_probable(candidates, std::min(epsilon, std::sqrt(epsilon) * std::exp(-entropy(candidates))));
}

void drop_top_choices(Candidates& candidates, double threshold) {
  std::vector<int32_t> likely =
      candidates.places_at_least(std::log(threshold * candidates.total_weight()));
  if (likely.size() <= 1) return;
  const auto worse = [&](int32_t a, int32_t b) {
    return candidates.score(a) != candidates.score(b) ? candidates.score(a) < candidates.score(b)
                                                      : a > b;
  };
  likely.erase(std::min_element(likely.begin(), likely.end(), worse));
  candidates.drop(likely);
}

int32_t draw(const Candidates& candidates, double uniform) {
  return candidates.id(candidates.place_at_mass(uniform * candidates.total_weight()));
}

double log_probability_of(const Candidates& candidates, int32_t token) {
  const int64_t place = candidates.place_of(token);
  if (place < 0) return -std::numeric_limits<double>::infinity();
  return candidates.score(place) - std::log(candidates.total_weight());
}

std::vector<ScoredToken> best_candidates(const Candidates& candidates, int64_t k) {
  std::vector<ScoredToken> best = best_tokens(candidates.scores(), candidates.size(), k);
  const double log_total = std::log(candidates.total_weight());
  for (ScoredToken& token : best) {
    token = {candidates.id(token.id), static_cast<float>(token.score - log_total)};
  }
  return best;
}

namespace {

// Quadratic sampling (kalomaze), as in text-generation-webui: with d = score - best, a score
// becomes best - k * factor * d^2 + s * factor * d^3, where k = (3 - curve) / 2 and s = (curve - 1)
// / 2. A curve above 3 can lift a score over the former best.
void smooth(Candidates& candidates, double factor, double curve) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr double kLowest = std::numeric_limits<float>::lowest();
  constexpr double kMost = 1e100;  // keeps all products finite
  const double square = std::clamp((3 - curve) / 2 * factor, -kMost, kMost);
  const double cube = std::clamp((curve - 1) / 2 * factor, -kMost, kMost);
  candidates.change_scores([&](float* scores, int64_t size, float best) {
    const auto smoothed = [&](float score) {
      const double d = double{score} - best;
      return d * d * (cube * d - square);
    };
    double largest = 0;
    for (int64_t i = 0; i < size; ++i) largest = std::max(largest, smoothed(scores[i]));
    float lowest = 0;
    for (int64_t i = 0; i < size; ++i) {
      const double score = smoothed(scores[i]) - largest;
      scores[i] = score < kLowest ? -kInfinity : static_cast<float>(score);
      lowest = std::min(lowest, scores[i]);
    }
    return lowest;
  });
}

using S = SamplingOptions;
using Context = DrawContext;

// Rows in the order of Hugging Face's GenerationMixin (transformers 5). Stages that it does not
// have stand where the others need them: top_n_sigma before the filters that shorten the vocabulary
// it measures, XTC after all of them. vLLM's V1 sampler applies min_p before top_k. llama.cpp's
// default chain ends with the temperature.
constexpr DrawStage kStages[] = {
    {.options =
         {{"temperature", &S::temperature,
           "divides the logits: below 1 sharpens the distribution, above 1 flattens it; 0 is "
           "greedy and always takes the most likely token",
           0, at_least(0), "Greedy choice takes the first of equally likely tokens"}},
     .places = {.hf = 10, .vllm = 10, .llama_cpp = 110},
     .device_place = 1,
     .apply =
         [](const Context& c, Candidates& left) {
           if (c.options.dynatemp_range == 0) scale(left, c.options.temperature);
         }},

    {.options = {{"dynatemp_range", &S::dynatemp_range,
                  "dynamic temperature: from temperature - range where the model is sure to "
                  "temperature + range where it is unsure; 0 is off",
                  0, at_least(0),
                  "The share of the way is (entropy / log of the number of tokens) ^ exponent"},
                 {"dynatemp_exponent", &S::dynatemp_exponent,
                  "exponent of dynatemp_range's share of the entropy", 1, at_least(0)}},
     .places = {.hf = 11, .vllm = 11, .llama_cpp = 111},
     .apply =
         [](const Context& c, Candidates& left) {
           const S& o = c.options;
           scale(left,
                 dynamic_temperature(left, o.temperature, o.dynatemp_range, o.dynatemp_exponent));
         }},

    {.options =
         {{"smoothing_factor", &S::smoothing_factor,
           "quadratic sampling: the larger, the steeper the likelihood falls with the "
           "squared distance from the largest logit; 0 is off",
           0, at_least(0),
           "With d = logit - largest, the logit becomes largest - (3 - curve) / 2 · factor · "
           "d² + (curve - 1) / 2 · factor · d³"},
          {"smoothing_curve", &S::smoothing_curve,
           "curve of smoothing_factor: 1 is a parabola, more falls faster far from the "
           "largest logit",
           1, at_least(1)}},
     .places = {.hf = 20, .vllm = 20, .llama_cpp = 115},
     .apply =
         [](const Context& c, Candidates& left) {
           smooth(left, c.options.smoothing_factor, c.options.smoothing_curve);
         }},

    {.options = {{"top_n_sigma", &S::top_n_sigma,
                  "keep logits within n standard deviations of the largest; 0 is off", 0,
                  at_least(0), "The deviation is taken over all logits"}},
     .places = {.hf = 30, .vllm = 30, .llama_cpp = 30},
     .filters = true,
     .apply = [](const Context& c,
                 Candidates& left) { keep_top_n_sigma(left, c.options.top_n_sigma); }},

    {.options = {{"top_k", &S::top_k, "keep the k most likely tokens, and ties; 0 is off", 0,
                  at_least(0), "All ties with the k-th token stay; in Python -1 is off, too"}},
     .places = {.hf = 40, .vllm = 40, .llama_cpp = 40},
     .device_place = 2,
     .filters = true,
     .apply = [](const Context& c, Candidates& left) { keep_top_k(left, c.options.top_k); }},

    {.options = {{"top_p", &S::top_p,
                  "keep the most likely tokens up to the one that brings their sum to p; 1 is off",
                  1, between(0, 1), "The token that reaches p stays; 0 keeps one token"}},
     .places = {.hf = 50, .vllm = 50, .llama_cpp = 50},
     .device_place = 3,
     .filters = true,
     .apply = [](const Context& c, Candidates& left) { keep_top_p(left, c.options.top_p); }},

    {.options = {{"min_p", &S::min_p,
                  "drop tokens less likely than this fraction of the most likely one; 0 is off", 0,
                  between(0, 1)}},
     .places = {.hf = 60, .vllm = 35, .llama_cpp = 60},
     .device_place = 4,
     .filters = true,
     .apply = [](const Context& c, Candidates& left) { keep_min_p(left, c.options.min_p); }},

    {.options =
         {{"typical_p", &S::typical_p,
           "keep the tokens whose surprise is nearest to the entropy until their sum reaches "
           "p; 1 is off",
           1, above_up_to(0, 1), "Ties with the last token stay"}},
     .places = {.hf = 70, .vllm = 70, .llama_cpp = 45},
     .filters = true,
     .apply = [](const Context& c, Candidates& left) { keep_typical(left, c.options.typical_p); }},

    {.options = {{"epsilon_cutoff", &S::epsilon_cutoff,
                  "drop tokens less likely than this; 0 is off", 0, between(0, 1)}},
     .places = {.hf = 80, .vllm = 80, .llama_cpp = 80},
     .filters = true,
     .apply = [](const Context& c,
                 Candidates& left) { keep_probable(left, c.options.epsilon_cutoff); }},

    {.options = {{"eta_cutoff", &S::eta_cutoff,
                  "drop tokens less likely than eta, or than a lower bound where the entropy is "
                  "high; 0 is off",
                  0, between(0, 1), "The bound is min(eta, √eta · e^-entropy)"}},
     .places = {.hf = 90, .vllm = 90, .llama_cpp = 90},
     .filters = true,
     .apply = [](const Context& c, Candidates& left) { keep_eta(left, c.options.eta_cutoff); }},

    {.options = {{"xtc_probability", &S::xtc_probability,
                  "probability that XTC drops all likely tokens but the least likely of them; 0 is "
                  "off",
                  0, between(0, 1)},
                 {"xtc_threshold", &S::xtc_threshold,
                  "probability from which XTC calls a token likely", 0.1, between(0, 1)}},
     .places = {.hf = 100, .vllm = 100, .llama_cpp = 70},
     .filters = true,
     .apply =
         [](const Context& c, Candidates& left) {
           // A random number of its own, so that the draw's is the same with XTC and without.
           const double roll = philox_uniform(c.options.seed, c.stream, c.step, 1);
           if (roll < c.options.xtc_probability) drop_top_choices(left, c.options.xtc_threshold);
         }},

    {.options =
         {{"mirostat", &S::mirostat,
           "2: mirostat, a cut that steers the surprise to mirostat_tau and replaces all "
           "filters; 0 is off",
           0, either(0, 2),
           "Removes tokens whose surprise in bits exceeds a cut, which starts at 2 · tau and "
           "moves by eta · (tau - surprise of the chosen token)"},
          {"mirostat_tau", &S::mirostat_tau, "target of mirostat, in bits per token", 5,
           at_least(0)},
          {"mirostat_eta", &S::mirostat_eta, "step size of mirostat's cut", 0.1, at_least(0)}},
     .places = {.hf = 110, .vllm = 110, .llama_cpp = 120},
     .apply = [](const Context& c, Candidates& left) { c.mirostat->keep(left); }},
};

}  // namespace

std::span<const DrawStage> draw_stages() { return kStages; }

}  // namespace onward
