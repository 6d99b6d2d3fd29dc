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

constexpr int64_t kMostPriority = 1000000;  // as in Python

// A count above every context has the same effect as the largest context. Negative values stay as
// they are: the core refuses them.
int64_t bounded(int64_t value) { return std::min(value, kMostTokens); }

SamplingOptions read_sampling(const onward_sampling& read, size_t vocab) {
  SamplingOptions options;
  options.set_numbers(read);
  if (read.order != nullptr) options.order = chain_order(read.order);
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
  static_cast<onward_beams&>(options) = read;
  constexpr EarlyStopping kStopping[] = {EarlyStopping::heuristic, EarlyStopping::full,
                                         EarlyStopping::never};
  options.early_stopping = kStopping[read_integer("early_stopping", read.early_stopping, 0, 2)];
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
  request.sampling = read_sampling(sampling, static_cast<size_t>(vocab_size));
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
  // Without duplicates: a beam search has a number of candidates for each stop token.
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
  onward_sampling sampling = SamplingOptions();
  sampling.size = sizeof sampling;
  return sampling;
}

onward_beams default_beams() {
  onward_beams beams = BeamOptions();
  beams.size = sizeof beams;
  return beams;
}

onward_request default_request() {
  constexpr int64_t kNewTokens = 256;  // as in Python
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
