#include "sampling/best_tokens.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/row_scans.h"

namespace onward {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kPart = 2048;  // scores of one scan: they fit the first-level cache

bool better(const ScoredToken& a, const ScoredToken& b) {
  return a.score != b.score ? a.score > b.score : a.id < b.id;
}

}  // namespace

int64_t first_largest(const float* scores, int64_t n) {
  float best = -kInfinity;
  int64_t best_part = -1;
  for (int64_t part = 0; part < n; part += kPart) {
    const float largest = row_scans().largest(scores + part, std::min(kPart, n - part));
    if (largest <= best) continue;
    best = largest;
    best_part = part;
  }
  if (best_part < 0) return -1;
  return std::find(scores + best_part, scores + n, best) - scores;
}

std::vector<ScoredToken> best_tokens(const float* scores, int64_t n, int64_t k) {
  std::vector<ScoredToken> best;  // a heap with the worst on top
  if (k <= 0) return best;
  best.reserve(static_cast<size_t>(std::min(k, n)));
  float part_scores[kPart + RowScans::kGatherRoom];
  int32_t part_ids[kPart + RowScans::kGatherRoom];
  float least = std::numeric_limits<float>::lowest();  // smaller scores cannot be among the best
  for (int64_t part = 0; part < n; part += kPart) {
    const int64_t found =
        row_scans().gather_range(scores + part, least, kInfinity, scores + part, nullptr,
                                 std::min(kPart, n - part), part_scores, part_ids);
    for (int64_t i = 0; i < found; ++i) {
      const ScoredToken token = {static_cast<int32_t>(part + part_ids[i]), part_scores[i]};
      if (static_cast<int64_t>(best.size()) == k) {
        if (!better(token, best.front())) continue;
        std::pop_heap(best.begin(), best.end(), better);
        best.back() = token;
      } else {
        best.push_back(token);
      }
      std::push_heap(best.begin(), best.end(), better);
    }
    if (static_cast<int64_t>(best.size()) == k) {
      least = std::nextafter(best.front().score, kInfinity);  // a later equal score is worse
    }
  }
  std::sort_heap(best.begin(), best.end(), better);
  return best;
}

}  // namespace onward
