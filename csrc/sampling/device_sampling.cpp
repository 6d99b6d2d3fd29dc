// Sampling on a device: the sampler's input for it, and the use of its answer
// (backend/row_sampling.h).
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/philox.h"
#include "sampling/candidates.h"
#include "sampling/sampler.h"

namespace onward {
namespace {

// Whether a device can do all these stages, and does them in this order.
template <typename Stage>
bool fits_device(const std::vector<const Stage*>& stages) {
  int last = kHostOnly;
  for (const Stage* stage : stages) {
    if (stage->device_place == kAnywhere) continue;
    if (stage->device_place <= last) return false;
    last = stage->device_place;
  }
  return true;
}

}  // namespace

std::optional<RowSampling> Sampler::on_device(const std::vector<int32_t>& tokens) const {
  const SamplingOptions& o = *options_;
  if (!fits_device(chain_.processors) || !fits_device(chain_.draw)) return std::nullopt;
  if (o.logprobs > 0) return std::nullopt;

  RowSampling row;
  for (const auto& [id, bias] : o.logit_bias) {
    if (bias == -std::numeric_limits<double>::infinity()) {
      row.banned.push_back(id);
    } else {
      row.biases.push_back({id, bias});
    }
  }
  row.repetition_penalty = repetition_factor(o.repetition_penalty);
  row.presence_penalty = o.presence_penalty;
  row.frequency_penalty = o.frequency_penalty;
  row.seen = seen_;
  row.banned.insert(row.banned.end(), o.suppress_tokens.begin(), o.suppress_tokens.end());
  if (static_cast<int64_t>(step(tokens)) < o.min_new_tokens) {
    row.banned.insert(row.banned.end(), o.stop_token_ids.begin(), o.stop_token_ids.end());
  }
  row.greedy = chain_.draw.empty();
  row.logprobs = o.logprobs >= 0;
  if (row.greedy) return row;
  row.inverse_temperature = inverse_of(o.temperature);
  row.top_k = o.top_k;
  row.top_p = o.top_p;
  if (o.min_p > 0) row.least_score = std::min(0.0f, rounded_up(std::log(o.min_p)));
  row.uniform = philox_uniform(o.seed, stream(), step(tokens));
  return row;
}

Choice Sampler::take(const RowChoice& found) {
  Choice choice;
  choice.token = found.token;
  if (options_->logprobs >= 0) {
    TokenLogprobs& logprobs = choice.logprobs.emplace();
    logprobs.token = found.token;
    const double raw_total = double{found.raw_largest} + std::log(found.raw_weight);
    logprobs.raw = static_cast<float>(found.raw_logit - raw_total);
    if (chain_.draw.empty()) {
      const double total = double{found.score} + std::log(found.weight);
      logprobs.chain = static_cast<float>(found.score - total);
    } else {
      logprobs.chain = found.score - std::log(found.weight);
    }
  }
  remember(choice.token);
  return choice;
}

}  // namespace onward
