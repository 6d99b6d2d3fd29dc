#include "capi/requests.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "capi/options.h"
#include "capi/rules.h"
#include "capi/status.h"
#include "sampling/chain.h"

namespace onward::capi {
namespace {

constexpr int64_t kMostPriority = 1000000;  // Python's

// Bounds that change nothing keep numbers of any size within the core's sums. What is negative
// stays so, for the core to refuse.
int64_t bounded(int64_t value) { return std::min(value, kMostTokens); }

SamplingOptions read_sampling(const onward_sampling& read, int64_t vocab_size) {
  const auto vocab = static_cast<size_t>(vocab_size);
  SamplingOptions options;
  options.temperature = read.temperature;
  options.top_k = std::min(read.top_k, vocab_size);
  options.top_p = read.top_p;
  options.min_p = read.min_p;
  options.typical_p = read.typical_p;
  options.top_n_sigma = read.top_n_sigma;
  options.epsilon_cutoff = read.epsilon_cutoff;
  options.eta_cutoff = read.eta_cutoff;
  options.xtc_probability = read.xtc_probability;
  options.xtc_threshold = read.xtc_threshold;
  options.dynatemp_range = read.dynatemp_range;
  options.dynatemp_exponent = read.dynatemp_exponent;
  options.mirostat = read.mirostat;
  options.mirostat_tau = read.mirostat_tau;
  options.mirostat_eta = read.mirostat_eta;
  options.repetition_penalty = read.repetition_penalty;
  options.presence_penalty = read.presence_penalty;
  options.frequency_penalty = read.frequency_penalty;
  options.dry_multiplier = read.dry_multiplier;
  options.dry_base = read.dry_base;
  options.dry_allowed_length = bounded(read.dry_allowed_length);
  options.no_repeat_ngram_size = bounded(read.no_repeat_ngram_size);
  if (read.order != nullptr) options.order = chain_order(read.order);
  options.seed = read.seed;
  options.stream = read.stream;
  if (read.num_logit_bias > vocab) {
    throw InvalidArgument("logit_bias: has " + std::to_string(read.num_logit_bias) +
                          " tokens, expected at most " + std::to_string(vocab));
  }
  if (read.num_logit_bias > 0) require_pointer("logit_bias", read.logit_bias);
  for (size_t i = 0; i < read.num_logit_bias; ++i) {
    const onward_logit_bias& given = read.logit_bias[i];
    if (!options.logit_bias.emplace(given.token, given.bias).second) {
      throw InvalidArgument("logit_bias: names token " + std::to_string(given.token) +
                            " twice, expected once");
    }
  }
  options.suppress_tokens =
      read_ids("suppress_tokens", read.suppress_tokens, read.num_suppress_tokens, vocab);
  if (read.allowed_token_ids != nullptr || read.num_allowed_token_ids > 0) {
    options.allowed_token_ids =
        read_ids("allowed_token_ids", read.allowed_token_ids, read.num_allowed_token_ids, vocab);
  }
  return options;
}

BeamOptions read_beams(const onward_beams& read) {
  BeamOptions options;
  options.num_beams = read.num_beams;
  options.num_beam_groups = read.num_beam_groups;
  options.diversity_penalty = read.diversity_penalty;
  options.length_penalty = read.length_penalty;
  constexpr EarlyStopping kStopping[] = {EarlyStopping::heuristic, EarlyStopping::full,
                                         EarlyStopping::never};
  options.early_stopping = kStopping[read_integer("early_stopping", read.early_stopping, 0, 2)];
  options.num_return_sequences = read.num_return_sequences;
  return options;
}

}  // namespace

Request read_request(const onward_request* given, const Pack& pack, int64_t max_context) {
  require_pointer("request", given);
  const onward_request read = read_struct("request", *given, default_request());
  const int64_t vocab_size = pack.model->spec.vocab_size;
  onward_sampling sampling = default_sampling();
  if (read.sampling != nullptr) sampling = read_struct("sampling", *read.sampling, sampling);
  Request request;
  request.prompt =
      read_ids("prompt", read.prompt, read.prompt_tokens, static_cast<size_t>(max_context));
  request.max_new_tokens = bounded(read.max_new_tokens);
  request.sampling = read_sampling(sampling, vocab_size);
  request.sampling.min_new_tokens = bounded(read.min_new_tokens);
  request.sampling.logprobs = std::min(read.logprobs, vocab_size);
  request.sampling.stop_token_ids =
      read_ids("stop_token_ids", read.stop_token_ids, read.num_stop_token_ids,
               static_cast<size_t>(vocab_size));
  if (!read_flag("ignore_eos", read.ignore_eos)) {
    const std::vector<int32_t>& eos = pack.vocabulary.eos_token_ids;
    std::vector<int32_t>& stops = request.sampling.stop_token_ids;
    stops.insert(stops.end(), eos.begin(), eos.end());
  }
  // Each once: with beams there are as many candidates as there are of them.
  std::vector<int32_t>& stops = request.sampling.stop_token_ids;
  std::sort(stops.begin(), stops.end());
  stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
  request.sampling.logits_processor = score_rule(read.score_rule, read.score_rule_context);
  if (auto rule = end_rule(read.end_rule, read.end_rule_context)) {
    request.end_rules.push_back(std::move(rule));
  }
  if (read.beams != nullptr) {
    request.beams = read_beams(read_struct("beams", *read.beams, default_beams()));
  }
  request.num_sequences = read.num_sequences;
  request.speculation.lookup_tokens = bounded(read.lookup_tokens);
  request.priority = read_integer("priority", read.priority, -kMostPriority, kMostPriority);
  request.cache = read_flag("cache", read.cache);
  return request;
}

onward_sampling default_sampling() {
  const SamplingOptions core;
  onward_sampling sampling{};
  sampling.size = sizeof sampling;
  sampling.temperature = core.temperature;
  sampling.top_p = core.top_p;
  sampling.typical_p = core.typical_p;
  sampling.xtc_threshold = core.xtc_threshold;
  sampling.dynatemp_exponent = core.dynatemp_exponent;
  sampling.mirostat_tau = core.mirostat_tau;
  sampling.mirostat_eta = core.mirostat_eta;
  sampling.repetition_penalty = core.repetition_penalty;
  sampling.dry_base = core.dry_base;
  sampling.dry_allowed_length = core.dry_allowed_length;
  return sampling;
}

onward_beams default_beams() {
  const BeamOptions core;
  onward_beams beams{};
  beams.size = sizeof beams;
  beams.num_beams = core.num_beams;
  beams.num_beam_groups = core.num_beam_groups;
  beams.length_penalty = core.length_penalty;
  beams.num_return_sequences = core.num_return_sequences;
  return beams;
}

onward_request default_request() {
  constexpr int64_t kNewTokens = 256;  // Python's
  onward_request request{};
  request.size = sizeof request;
  request.max_new_tokens = kNewTokens;
  request.num_sequences = 1;
  request.logprobs = -1;
  request.cache = 1;
  return request;
}

}  // namespace onward::capi

void onward_sampling_init_sized(onward_sampling* sampling, size_t size) {
  onward::capi::init_struct(onward::capi::default_sampling(), sampling, size);
}

void onward_beams_init_sized(onward_beams* beams, size_t size) {
  onward::capi::init_struct(onward::capi::default_beams(), beams, size);
}

void onward_request_init_sized(onward_request* request, size_t size) {
  onward::capi::init_struct(onward::capi::default_request(), request, size);
}
