#include "sampling/sampling_options.h"

#include "sampling/stage.h"

namespace onward {
namespace {

using S = SamplingOptions;

constexpr Option<S> kStageless[] = {
    {"sampling_order", &S::order,
     "order of the stages: \"hf\", \"vllm\" or \"llama.cpp\" (temperature last)"},
};

}  // namespace

std::span<const Option<SamplingOptions>> stageless_options() { return kStageless; }

SamplingOptions::SamplingOptions() : onward_sampling{} {
  for_each_option([&](const Option<SamplingOptions>& option) { set_default(*this, option); });
}

void SamplingOptions::set_numbers(const onward_sampling& numbers) {
  onward_sampling& own = *this;
  own = numbers;
  own.order = nullptr;
  own.logit_bias = nullptr;
  own.suppress_tokens = nullptr;
  own.allowed_token_ids = nullptr;
}

void SamplingOptions::validate(int64_t vocab_size) const {
  for_each_option(
      [&](const Option<SamplingOptions>& option) { check_option(*this, option, vocab_size); });
  check_value("stop_token_ids", {}, stop_token_ids, vocab_size);
  check_value("logprobs", at_least(-1), logprobs, vocab_size);
}

}  // namespace onward
