// Chooses tokens from rows of logits, one block for each row, like the sampler of the CPU
// (sampling/): with the same bits of the scores, the same ties and the same random number.
// Thresholds are found digit by digit of the scores, best first, without sorting.
//
// Weights are summed as integers, so that the order of the threads does not change a sum. A sum
// differs from the exact value by about 2^-53 of it, like the float64 sums of the CPU. A choice
// differs from the CPU's only if a sum is that near to its threshold, about once in 1e13 draws.
#include "cuda/kernels/numbers.h"
#include "cuda/kernels/verbs.h"

namespace onward::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kBins = 2048;
constexpr float kLargestFloat = 3.402823466e38f;

struct SampleArgs {
  const float* logits;
  int64_t stride;
  int32_t vocab_size;
  const SampledRow* rows;
  float* scores;
  RowChoice* choices;
};

struct SampleShared {
  uint32_t low[kBins];  // lower halves of 64-bit sums
  uint32_t high[kBins];
  uint64_t words[kWarps];  // results of the warps
  double sums[kWarps];
  int32_t bin;  // the bin where a sum is reached,
  uint64_t before;
  uint64_t amount;  // the sum before it, and the amount in it
  int32_t place;
  RowChoice choice;  // written by thread 0
};

__device__ inline int lane() { return static_cast<int>(threadIdx.x % 32); }
__device__ inline int warp() { return static_cast<int>(threadIdx.x / 32); }

// Calls visit(place, value) for the values of a row; each thread visits its values in order.
// Several values are read in advance, because one block must keep the memory busy.
template <typename Visit>
__device__ inline void for_each(const float* values, int n, const Visit& visit) {
  constexpr int kAhead = 8;
  for (int first = static_cast<int>(threadIdx.x); first < n; first += kAhead * kThreads) {
    float ahead[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int place = first + i * kThreads;
      ahead[i] = place < n ? values[place] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int place = first + i * kThreads;
      if (place < n) visit(place, ahead[i]);
    }
  }
}

__device__ inline double block_sum(SampleShared& shared, double value) {
  for (int half = 16; half > 0; half /= 2) value += shuffle_xor(value, half);
  sync_block();
  if (lane() == 0) shared.sums[warp()] = value;
  sync_block();
  double sum = 0;
  for (int i = 0; i < kWarps; ++i) sum += shared.sums[i];
  return sum;
}

__device__ inline uint64_t block_largest(SampleShared& shared, uint64_t value) {
  for (int half = 16; half > 0; half /= 2) {
    const uint64_t other = shuffle_xor(value, half);
    value = other > value ? other : value;
  }
  sync_block();
  if (lane() == 0) shared.words[warp()] = value;
  sync_block();
  uint64_t largest = 0;
  for (int i = 0; i < kWarps; ++i) largest = shared.words[i] > largest ? shared.words[i] : largest;
  return largest;
}

// A score and its place in one word. A larger score is a larger word; for equal scores, the lower
// place is larger. Zeros of both signs are equal.
constexpr uint64_t kNotFinite = 0xffffffffu;
__device__ inline uint64_t ranked(float score, int32_t place) {
  const uint32_t bits = bits_of(score + 0.0f);
  const uint32_t order = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(order) << 32 | ~static_cast<uint32_t>(place);
}
__device__ inline float score_of(uint64_t rank) {
  const auto order = static_cast<uint32_t>(rank >> 32);
  return float_of(order >> 31 != 0 ? order & 0x7fffffffu : ~order);
}
__device__ inline int32_t place_of(uint64_t rank) {
  return static_cast<int32_t>(~static_cast<uint32_t>(rank));
}

// The best word of a row of logits, or kNotFinite in the upper half.
__device__ inline uint64_t best_logit(SampleShared& shared, const float* logits, int n) {
  uint64_t best = 0;
  for_each(logits, n, [&](int place, float logit) {
    const bool finite = (bits_of(logit) & 0x7f800000u) != 0x7f800000u;
    const uint64_t rank = finite ? ranked(logit, place) : kNotFinite << 32;
    best = rank > best ? rank : best;
  });
  return block_largest(shared, best);
}

__device__ inline uint64_t best_score(SampleShared& shared, const float* scores, int n) {
  uint64_t best = 0;
  for_each(scores, n, [&](int place, float score) {
    const uint64_t rank = ranked(score, place);
    best = rank > best ? rank : best;
  });
  return block_largest(shared, best);
}

// Sum of exp(score - largest).
__device__ inline double total_weight(SampleShared& shared, const float* scores, int n,
                                      float largest) {
  double sum = 0;
  for_each(scores, n,
           [&](int, float score) { sum += static_cast<double>(exponential(score - largest)); });
  return block_sum(shared, sum);
}

// As in sampling/scores.h: limits to the finite range of float32; a banned token stays banned.
__device__ inline float changed(float score, double value) {
  if (score == -kInfinity) return score;
  const auto most = static_cast<double>(kLargestFloat);
  if (value < -most) value = -most;
  if (value > most) value = most;
  return static_cast<float>(value);
}

// Applies biases, penalties and bans of each token in this order, with the rounding of sampling/.
__device__ inline void change_scores(const SampledRow& row, float* scores) {
  const RowOptions& options = row.options;
  for (int i = static_cast<int>(threadIdx.x); i < row.num_biases; i += kThreads) {
    float& score = scores[row.biases[i].id];
    score = changed(score, static_cast<double>(score) + row.biases[i].bias);
  }
  sync_block();
  for (int i = static_cast<int>(threadIdx.x); i < row.num_seen; i += kThreads) {
    const SeenToken seen = row.seen[i];
    float score = scores[seen.id];
    if (options.repetition_penalty != 1) {
      const auto s = static_cast<double>(score);
      score =
          changed(score, s < 0 ? s * options.repetition_penalty : s / options.repetition_penalty);
    }
    if (seen.output_count > 0) {
      const double by_count = options.frequency_penalty * static_cast<double>(seen.output_count);
      score = changed(score, static_cast<double>(score) - options.presence_penalty);
      score = changed(score, static_cast<double>(score) - by_count);
    }
    scores[seen.id] = score;
  }
  sync_block();
  for (int i = static_cast<int>(threadIdx.x); i < row.num_banned; i += kThreads) {
    scores[row.banned[i]] = -kInfinity;
  }
  sync_block();
}

// Adds to the 64 bits of a bin. The thread that causes a carry sees it, in any order of the
// threads.
__device__ inline void add_to_bin(SampleShared& shared, uint32_t bin, uint64_t amount) {
  const auto low = static_cast<uint32_t>(amount);
  const uint32_t before = add_shared(&shared.low[bin], low);
  const uint32_t carry = before + low < before ? 1 : 0;
  const uint32_t high = static_cast<uint32_t>(amount >> 32) + carry;
  if (high != 0) add_shared(&shared.high[bin], high);
}

__device__ inline uint64_t bin_amount(const SampleShared& shared, int bin) {
  return static_cast<uint64_t>(shared.high[bin]) << 32 | shared.low[bin];
}

// The sum of the lanes of a warp up to this lane.
__device__ inline uint64_t running_sum(uint64_t value) {
  for (int step = 1; step < 32; step *= 2) {
    const uint64_t other = shuffle(value, lane() - step);
    if (lane() >= step) value += other;
  }
  return value;
}

// Finds the bin where `before` plus the sum over the bins reaches the target. One warp calls it.
__device__ inline void reach_bin(SampleShared& shared, int bins, uint64_t before, uint64_t target) {
  const int each = bins / 32, first = lane() * each;
  uint64_t sum = 0;
  // Each lane begins at a different offset in its bins, so that lanes use different memory banks.
  for (int i = 0; i < each; ++i) sum += bin_amount(shared, first + (i + lane()) % each);
  uint64_t reached = before + running_sum(sum) - sum;
  if (reached >= target || reached + sum < target) return;
  for (int bin = first; bin < first + each; ++bin) {
    const uint64_t amount = bin_amount(shared, bin);
    if (reached + amount >= target) {
      shared.bin = bin;
      shared.before = reached;
      shared.amount = amount;
      return;
    }
    reached += amount;
  }
}

struct Crossed {
  float score;
  uint64_t above;   // the amount of all better scores
  uint64_t amount;  // the amount of the tokens with this score
};

// The score where the sum of amounts, best score first, reaches target > 0. Scores are at most 0,
// so their bits without the sign grow from the best to the worst. Three passes count 11, 10 and 10
// of these bits, each among the scores that agree with the bits found so far. amount(score) is 0
// for scores that do not take part.
template <typename Amount>
__device__ Crossed cross(SampleShared& shared, const float* scores, int n, uint64_t target,
                         const Amount& amount) {
  uint32_t found = 0;
  uint64_t before = 0, at = 0;
  for (int shift = 20; shift >= 0; shift -= 10) {
    const int width = shift == 20 ? 11 : 10;
    for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kThreads) {
      shared.low[bin] = shared.high[bin] = 0;
    }
    if (threadIdx.x == 0) shared.bin = -1;
    sync_block();
    for_each(scores, n, [&](int, float score) {
      const uint32_t bits = bits_of(score) & 0x7fffffffu;
      if (bits >> (shift + width) != found) return;
      const uint64_t added = amount(score);
      if (added > 0) add_to_bin(shared, bits >> shift & ((1u << width) - 1), added);
    });
    sync_block();
    if (warp() == 0) reach_bin(shared, 1 << width, before, target);
    sync_block();
    // The target is larger than the sum. No caller does this; the answer would be all scores.
    if (shared.bin < 0) return {-kLargestFloat, before, 0};
    found = found << width | static_cast<uint32_t>(shared.bin);
    before = shared.before;
    at = shared.amount;
    sync_block();
  }
  return {0.0f - float_of(found), before, at};
}

// Each warp has a range of consecutive places of a row.
struct Run {
  int begin, end;
};
__device__ inline Run run_of(int n, int warp) {
  const int each = ((n + kWarps - 1) / kWarps + 31) / 32 * 32;
  const int begin = warp * each, end = begin + each;
  return {begin < n ? begin : n, end < n ? end : n};
}

// The sum of amount(place) over the row. The sums of the warps are kept for `place_beyond`.
template <typename Amount>
__device__ uint64_t run_sums(SampleShared& shared, int n, const Amount& amount) {
  const Run run = run_of(n, warp());
  uint64_t sum = 0;
#pragma unroll 8
  for (int i = run.begin + lane(); i < run.end; i += 32) sum += amount(i);
  for (int half = 16; half > 0; half /= 2) sum += shuffle_xor(sum, half);
  sync_block();
  if (lane() == 0) shared.words[warp()] = sum;
  sync_block();
  uint64_t total = 0;
  for (int i = 0; i < kWarps; ++i) total += shared.words[i];
  return total;
}

// The first place where the sum over all places up to it exceeds `limit`. The total must exceed
// `limit`.
template <typename Amount>
__device__ int place_beyond(SampleShared& shared, int n, uint64_t limit, const Amount& amount) {
  uint64_t before = 0;
  int owner = 0;
  while (owner < kWarps - 1 && before + shared.words[owner] <= limit) {
    before += shared.words[owner++];
  }
  if (warp() == owner) {
    const Run run = run_of(n, owner);
    for (int first = run.begin; first < run.end; first += 32) {
      const int place = first + lane();
      const uint64_t mine = place < run.end ? amount(place) : 0;
      const uint64_t reached = before + running_sum(mine);
      if (reached - mine <= limit && limit < reached) shared.place = place;
      before = shuffle(reached, 31);
      if (before > limit) break;
    }
  }
  sync_block();
  return shared.place;
}

// Weights as integers. The total weight is at least 1 and is scaled to be near 2^61.
struct Scale {
  double units;
  __device__ explicit Scale(double total) : units(0x1p61) {
    for (; total >= 2; total /= 2) units /= 2;
  }
  __device__ uint64_t operator()(float weight) const {
    return static_cast<uint64_t>(static_cast<double>(weight) * units + 0.5);
  }
};

// `best` is the best word of `changed`, which is the logits or the scores.
__device__ inline void draw(SampleShared& shared, const RowOptions& options, const float* changed,
                            float* scores, int n, uint64_t best) {
  const auto largest = static_cast<double>(score_of(best));
  double finite = 0;
  for_each(changed, n, [&](int place, float logit) {
    const double difference = static_cast<double>(logit) - largest;
    // From here on, zeros are positive.
    const float score = static_cast<float>(difference * options.inverse_temperature) + 0.0f;
    scores[place] = score;
    if (score != -kInfinity) finite += 1;
  });
  finite = block_sum(shared, finite);
  float least = -kLargestFloat;
  if (options.top_k > 0 && static_cast<double>(options.top_k) < finite) {
    least = cross(shared, scores, n, static_cast<uint64_t>(options.top_k), [](float score) {
              return score != -kInfinity ? uint64_t{1} : uint64_t{0};
            }).score;
  }

  double weight = 0;
  for_each(scores, n, [&](int, float score) {
    if (score >= least) weight += static_cast<double>(exponential(score));
  });
  weight = block_sum(shared, weight);
  const Scale scale(weight);
  float tied = kInfinity;  // tokens with this score stay only up to a place
  int last_tied = 0;
  if (options.top_p < 1) {
    const double mass = (options.top_p - kFloat32Resolution) * weight * scale.units;
    auto target = mass > 0 ? static_cast<uint64_t>(mass) : uint64_t{0};
    if (static_cast<double>(target) < mass || target == 0) ++target;
    // All scores below this together weigh less than the rest at every top_p < 1.
    const float negligible = static_cast<float>(kFloat32Resolution / 4 * weight / n);
    const float least_of_k = least;
    const Crossed crossed = cross(shared, scores, n, target, [&](float score) {
      const float w = score >= least_of_k ? exponential(score) : 0.0f;
      return w > negligible ? scale(w) : uint64_t{0};
    });
    least = crossed.score;
    const uint64_t each = scale(exponential(crossed.score));
    const uint64_t staying = each > 0 ? (target - crossed.above + each - 1) / each : 0;
    if (each > 0 && staying * each < crossed.amount) {
      const auto ties = [&](int place) {
        return scores[place] == crossed.score ? uint64_t{1} : uint64_t{0};
      };
      run_sums(shared, n, ties);
      tied = crossed.score;
      last_tied = place_beyond(shared, n, staying - 1, ties);
    }
  }
  if (options.least_score > least) least = options.least_score;

  const auto kept_weight = [&](int place) {
    const float score = scores[place];
    const bool kept = score >= least && (score != tied || place <= last_tied);
    return kept ? scale(exponential(score)) : uint64_t{0};
  };
  const uint64_t total = run_sums(shared, n, kept_weight);
  auto limit = static_cast<uint64_t>(options.uniform * static_cast<double>(total));
  if (limit >= total) limit = total - 1;  // the product may be rounded up
  const int token = place_beyond(shared, n, limit, kept_weight);
  if (threadIdx.x == 0) {
    shared.choice.token = token;
    shared.choice.score = scores[token];
    shared.choice.weight = static_cast<double>(total) / scale.units;
  }
}

__global__ void __launch_bounds__(kThreads) sample(SampleArgs args) {
  SampleShared& shared = *reinterpret_cast<SampleShared*>(shared_memory());
  const SampledRow& row = args.rows[blockIdx.x];
  const RowOptions& options = row.options;
  const float* logits = args.logits + options.row * args.stride;
  const int n = args.vocab_size;
  float* scores = args.scores + static_cast<int64_t>(blockIdx.x) * n;
  RowChoice& choice = shared.choice;
  if (threadIdx.x == 0) choice = RowChoice();

  uint64_t best = best_logit(shared, logits, n);
  const bool finite = best >> 32 != kNotFinite;
  if (finite && options.logprobs) {
    const double weight = total_weight(shared, logits, n, score_of(best));
    if (threadIdx.x == 0) {
      choice.raw_largest = score_of(best);
      choice.raw_weight = weight;
    }
  }
  const float* changed = logits;
  if (finite && row.num_biases + row.num_seen + row.num_banned > 0) {
    for_each(logits, n, [&](int place, float logit) { scores[place] = logit; });
    sync_block();
    change_scores(row, scores);
    changed = scores;
    best = best_score(shared, scores, n);
  }
  // Otherwise the host samples the row and reports the error.
  if (finite && score_of(best) != -kInfinity) {
    if (options.greedy) {
      const double weight =
          options.logprobs ? total_weight(shared, changed, n, score_of(best)) : 0.0;
      if (threadIdx.x == 0) {
        choice.token = place_of(best);
        choice.score = score_of(best);
        choice.weight = weight;
      }
    } else {
      draw(shared, options, changed, scores, n, best);
    }
  }
  if (threadIdx.x != 0) return;
  if (choice.token >= 0) choice.raw_logit = logits[choice.token];
  args.choices[blockIdx.x] = choice;
}

}  // namespace

void sample_rows(Stream& stream, const float* logits, int64_t stride, int64_t vocab_size,
                 const SampledRow* rows, int64_t count, float* scores, RowChoice* choices) {
  const SampleArgs args = {logits, stride, static_cast<int32_t>(vocab_size), rows, scores, choices};
  launch(stream, {count, 1, 1, kThreads, sizeof(SampleShared)}, sample, args);
}

}  // namespace onward::cuda
