#include "sampling/repetition.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "sampling/scores.h"

namespace onward {
namespace {

// matches[i]: the number of tokens before position i that equal the last tokens, at most `limit`.
// The Z algorithm on the reversed tokens, in linear time for any input.
std::vector<int64_t> suffix_matches(const std::vector<int32_t>& tokens, int64_t limit) {
  const int64_t size = static_cast<int64_t>(tokens.size());
  const auto from_end = [&](int64_t i) { return tokens[static_cast<size_t>(size - 1 - i)]; };
  std::vector<int64_t> z(tokens.size()), matches(tokens.size());
  int64_t left = 0, right = 0;  // the match that ends last
  for (int64_t i = 1; i < size; ++i) {
    int64_t length = i < right ? std::min(right - i, z[static_cast<size_t>(i - left)]) : 0;
    while (i + length < size && from_end(length) == from_end(i + length)) ++length;
    z[static_cast<size_t>(i)] = length;
    if (i + length > right) {
      left = i;
      right = i + length;
    }
    matches[static_cast<size_t>(size - i)] = std::min(length, limit);
  }
  return matches;
}

}  // namespace

void ban_repeated_ngrams(float* scores, const std::vector<int32_t>& tokens, int64_t size) {
  if (size <= 0 || static_cast<int64_t>(tokens.size()) < size) return;
  const auto prefix = tokens.end() - (size - 1);
  for (auto start = tokens.begin(); start + (size - 1) < tokens.end(); ++start) {
    if (std::equal(prefix, tokens.end(), start)) scores[start[size - 1]] = kBanned;
  }
}

void ban_bad_words(float* scores, const std::vector<int32_t>& tokens,
                   const std::vector<std::vector<int32_t>>& bad_words_ids) {
  for (const std::vector<int32_t>& words : bad_words_ids) {
    const auto before = static_cast<std::ptrdiff_t>(words.size()) - 1;
    if (before > static_cast<std::ptrdiff_t>(tokens.size())) continue;
    if (std::equal(words.begin(), words.end() - 1, tokens.end() - before)) {
      scores[words.back()] = kBanned;
    }
  }
}

void apply_dry(float* scores, const std::vector<int32_t>& tokens, const SamplingOptions& options) {
  if (options.dry_multiplier == 0) return;
  const auto breaks = [&](int32_t token) {
    const auto& breakers = options.dry_sequence_breakers;
    return std::find(breakers.begin(), breakers.end(), token) != breakers.end();
  };
  const int64_t limit = std::find_if(tokens.rbegin(), tokens.rend(), breaks) - tokens.rbegin();
  if (limit < options.dry_allowed_length) return;
  const std::vector<int64_t> matches = suffix_matches(tokens, limit);
  std::unordered_map<int32_t, int64_t> longest;  // token -> the repetition that it would extend
  for (size_t i = 1; i < tokens.size(); ++i) {
    if (matches[i] < options.dry_allowed_length || breaks(tokens[i])) continue;
    int64_t& length = longest[tokens[i]];
    length = std::max(length, matches[i]);
  }
  for (const auto& [token, length] : longest) {
    const double exponent = static_cast<double>(length - options.dry_allowed_length);
    const double penalty = options.dry_multiplier * std::pow(options.dry_base, exponent);
    change_score(scores[token], double{scores[token]} - penalty);
  }
}

}  // namespace onward
