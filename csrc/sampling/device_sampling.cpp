// What the sampler tells a device, and what it makes of the answer (backend/row_sampling.h). Knows
// no device.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/philox.h"
#include "sampling/candidates.h"
#include "sampling/sampler.h"

namespace onward {
namespace {

// Whether `stages` are some of `order`, in this order.
template <size_t size>
bool follows(const std::vector<Stage>& stages, const Stage (&order)[size]) {
  const Stage* next = order;
  for (const Stage stage : stages) {
    next = std::find(next, order + size, stage);
    if (next++ == order + size) return false;
  }
  return true;
}

// Bans may stand anywhere: what comes after one leaves a banned token banned.
bool bans(Stage stage) { return stage == Stage::min_new_tokens || stage == Stage::suppress_tokens; }

constexpr Stage kChanges[] = {Stage::logit_bias, Stage::repetition_penalty, Stage::presence_penalty,
                              Stage::frequency_penalty};
constexpr Stage kDraw[] = {Stage::temperature, Stage::top_k, Stage::top_p, Stage::min_p};

}  // namespace

std::optional<RowSampling> Sampler::on_device(const std::vector<int32_t>& tokens) const {
  const SamplingOptions& o = *options_;
  std::vector<Stage> changes = chain_.processors;
  changes.erase(std::remove_if(changes.begin(), changes.end(), bans), changes.end());
  if (!follows(changes, kChanges) || !follows(chain_.draw, kDraw)) return std::nullopt;
  if (o.dynatemp_range != 0 || o.logprobs > 0) return std::nullopt;

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
    TokenLogprobs& told = choice.logprobs.emplace();
    told.token = found.token;
    const double raw_total = double{found.raw_largest} + std::log(found.raw_weight);
    told.raw = static_cast<float>(found.raw_logit - raw_total);
    if (chain_.draw.empty()) {
      const double total = double{found.score} + std::log(found.weight);
      told.chain = static_cast<float>(found.score - total);
    } else {
      told.chain = found.score - std::log(found.weight);
    }
  }
  remember(choice.token);
  return choice;
}

}  // namespace onward
