#include "cpu/tasks/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

namespace onward::cpu {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// The scores of all experts. Sums are doubles, so that they hardly depend on the order.
void score(const Routing& routing, const float* logits, std::vector<float>& scores) {
  const size_t count = static_cast<size_t>(routing.experts);
  scores.resize(count);
  if (routing.sigmoid) {
    for (size_t i = 0; i < count; ++i) {
      scores[i] = static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(logits[i]))));
    }
    return;
  }
  const double highest = *std::max_element(logits, logits + count);
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += std::exp(logits[i] - highest);
  for (size_t i = 0; i < count; ++i) {
    scores[i] = static_cast<float>(std::exp(logits[i] - highest) / sum);
  }
}

float group_score(const Routing& routing, const float* choice, int64_t size) {
  float best = kLowest, second = kLowest;
  for (int64_t i = 0; i < size; ++i) {
    if (choice[i] > best) {
      second = best;
      best = choice[i];
    } else {
      second = std::max(second, choice[i]);
    }
  }
  return routing.top2 && size > 1 ? best + second : best;
}

// The indices of the best values, the lower index first among equals.
std::vector<int32_t> best_of(std::span<const float> values, int64_t count) {
  std::vector<int32_t> order(values.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  const auto better = [&](int32_t a, int32_t b) {
    const float x = values[static_cast<size_t>(a)], y = values[static_cast<size_t>(b)];
    return x > y || (!(y > x) && a < b);
  };
  std::partial_sort(order.begin(), order.begin() + count, order.end(), better);
  order.resize(static_cast<size_t>(count));
  return order;
}

void mix_sparsely(const Routing& routing, const float* logits, ChosenExpert* chosen) {
  const std::span<const float> all(logits, static_cast<size_t>(routing.experts));
  std::vector<bool> taken(all.size());
  int64_t count = 0;
  for (const int32_t expert : best_of(all, routing.chosen)) {
    const float own = logits[expert];
    double sum = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      const float larger = std::max(std::fabs(all[i]), own);
      if (taken[i] || (own - all[i]) / larger > 2 * routing.jitter) continue;
      sum += std::exp(static_cast<double>(all[i]) - own);
    }
    taken[static_cast<size_t>(expert)] = true;
    chosen[count++] = {expert, static_cast<float>(routing.scale / sum)};
  }
  std::sort(chosen, chosen + count,
            [](const ChosenExpert& a, const ChosenExpert& b) { return a.expert < b.expert; });
}

}  // namespace

void choose_experts(const Routing& routing, const float* logits, const float* correction,
                    ChosenExpert* chosen) {
  const int64_t count = routing.experts;
  if (std::any_of(logits, logits + count, [](float logit) { return std::isnan(logit); })) {
    for (int64_t i = 0; i < routing.chosen; ++i) {
      chosen[i] = {static_cast<int32_t>(i), std::numeric_limits<float>::quiet_NaN()};
    }
    return;
  }
  if (routing.sparse_mixer) return mix_sparsely(routing, logits, chosen);
  std::vector<float> scores;
  score(routing, logits, scores);
  std::vector<float> choice = scores;
  if (correction != nullptr) {
    for (int64_t i = 0; i < count; ++i) choice[static_cast<size_t>(i)] += correction[i];
  }
  if (routing.chosen_groups < routing.groups) {
    const int64_t size = count / routing.groups;
    std::vector<float> groups;
    for (int64_t group = 0; group < routing.groups; ++group) {
      groups.push_back(group_score(routing, choice.data() + group * size, size));
    }
    std::vector<bool> kept(groups.size());
    for (const int32_t group : best_of(groups, routing.chosen_groups)) {
      kept[static_cast<size_t>(group)] = true;
    }
    for (int64_t i = 0; i < count; ++i) {
      if (!kept[static_cast<size_t>(i / size)]) choice[static_cast<size_t>(i)] = kLowest;
    }
  }
  std::vector<int32_t> best = best_of(choice, routing.chosen);
  std::sort(best.begin(), best.end());
  double sum = 0;
  for (const int32_t expert : best) sum += scores[static_cast<size_t>(expert)];
  const double divisor = routing.normalise ? sum : 1.0;
  for (size_t i = 0; i < best.size(); ++i) {
    const double weight = scores[static_cast<size_t>(best[i])] / divisor;
    chosen[i] = {best[i], static_cast<float>(weight * routing.scale)};
  }
}

}  // namespace onward::cpu
