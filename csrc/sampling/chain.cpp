#include "sampling/chain.h"

#include <array>

#include "base/error.h"

namespace onward {
namespace {

// Hugging Face's order (GenerationMixin of transformers 5). What it has not stands where the others
// need it: count penalties after the repetition penalty, top_n_sigma before the filters that
// shorten the vocabulary it measures, XTC after all. The grammar is last, so that nothing can undo
// it.
constexpr std::array kProcessors = {Stage::logit_bias,
                                    Stage::repetition_penalty,
                                    Stage::presence_penalty,
                                    Stage::frequency_penalty,
                                    Stage::dry,
                                    Stage::no_repeat_ngram,
                                    Stage::bad_words,
                                    Stage::min_new_tokens,
                                    Stage::allowed_tokens,
                                    Stage::suppress_tokens,
                                    Stage::logits_processor,
                                    Stage::grammar};
constexpr std::array kDraw = {Stage::temperature,    Stage::top_n_sigma, Stage::top_k,
                              Stage::top_p,          Stage::min_p,       Stage::typical_p,
                              Stage::epsilon_cutoff, Stage::eta_cutoff,  Stage::xtc};

// vLLM's (V1 sampler): bans and the bias before the penalties, min_p before top_k.
constexpr std::array kVllmProcessors = {Stage::allowed_tokens,     Stage::bad_words,
                                        Stage::suppress_tokens,    Stage::min_new_tokens,
                                        Stage::logit_bias,         Stage::logits_processor,
                                        Stage::repetition_penalty, Stage::frequency_penalty,
                                        Stage::presence_penalty,   Stage::dry,
                                        Stage::no_repeat_ngram,    Stage::grammar};
constexpr std::array kVllmDraw = {Stage::temperature,    Stage::top_n_sigma, Stage::min_p,
                                  Stage::top_k,          Stage::top_p,       Stage::typical_p,
                                  Stage::epsilon_cutoff, Stage::eta_cutoff,  Stage::xtc};

// llama.cpp's default chain: the temperature comes last.
constexpr std::array kLlamaCppDraw = {Stage::top_n_sigma,    Stage::top_k,      Stage::typical_p,
                                      Stage::top_p,          Stage::min_p,      Stage::xtc,
                                      Stage::epsilon_cutoff, Stage::eta_cutoff, Stage::temperature};

bool is_on(const SamplingOptions& o, Stage stage) {
  switch (stage) {
    case Stage::logit_bias:
      return !o.logit_bias.empty();
    case Stage::repetition_penalty:
      return o.repetition_penalty != 1;
    case Stage::presence_penalty:
      return o.presence_penalty != 0;
    case Stage::frequency_penalty:
      return o.frequency_penalty != 0;
    case Stage::dry:
      return o.dry_multiplier != 0;
    case Stage::no_repeat_ngram:
      return o.no_repeat_ngram_size > 0;
    case Stage::bad_words:
      return !o.bad_words_ids.empty();
    case Stage::min_new_tokens:
      return o.min_new_tokens > 0;
    case Stage::allowed_tokens:
      return o.allowed_token_ids.has_value();
    case Stage::suppress_tokens:
      return !o.suppress_tokens.empty();
    case Stage::logits_processor:
      return o.logits_processor != nullptr;
    case Stage::grammar:
      return o.grammar != nullptr;
    case Stage::temperature:
      return true;
    case Stage::top_n_sigma:
      return o.top_n_sigma > 0;
    case Stage::top_k:
      return o.top_k > 0;
    case Stage::top_p:
      return o.top_p < 1;
    case Stage::min_p:
      return o.min_p > 0;
    case Stage::typical_p:
      return o.typical_p < 1;
    case Stage::epsilon_cutoff:
      return o.epsilon_cutoff > 0;
    case Stage::eta_cutoff:
      return o.eta_cutoff > 0;
    case Stage::xtc:
      return o.xtc_probability > 0;
    case Stage::mirostat:
      return o.mirostat != 0;
  }
  return false;
}

template <size_t size>
std::vector<Stage> those_on(const SamplingOptions& options, const std::array<Stage, size>& order) {
  std::vector<Stage> on;
  for (const Stage stage : order) {
    if (is_on(options, stage)) on.push_back(stage);
  }
  return on;
}

const char* stage_name(Stage stage) {
  switch (stage) {
    case Stage::logit_bias:
      return "logit_bias";
    case Stage::repetition_penalty:
      return "repetition_penalty";
    case Stage::presence_penalty:
      return "presence_penalty";
    case Stage::frequency_penalty:
      return "frequency_penalty";
    case Stage::dry:
      return "dry_multiplier";
    case Stage::no_repeat_ngram:
      return "no_repeat_ngram_size";
    case Stage::bad_words:
      return "bad_words_ids";
    case Stage::min_new_tokens:
      return "min_new_tokens";
    case Stage::allowed_tokens:
      return "allowed_token_ids";
    case Stage::suppress_tokens:
      return "suppress_tokens";
    case Stage::logits_processor:
      return "logits_processor";
    case Stage::grammar:
      return "grammar";
    case Stage::temperature:
      return "temperature";
    case Stage::top_n_sigma:
      return "top_n_sigma";
    case Stage::top_k:
      return "top_k";
    case Stage::top_p:
      return "top_p";
    case Stage::min_p:
      return "min_p";
    case Stage::typical_p:
      return "typical_p";
    case Stage::epsilon_cutoff:
      return "epsilon_cutoff";
    case Stage::eta_cutoff:
      return "eta_cutoff";
    case Stage::xtc:
      return "xtc_probability";
    case Stage::mirostat:
      return "mirostat";
  }
  return "";
}

}  // namespace

Chain chain_of(const SamplingOptions& options) {
  Chain chain;
  const bool vllm = options.order == ChainOrder::vllm;
  chain.processors = vllm ? those_on(options, kVllmProcessors) : those_on(options, kProcessors);
  if (options.temperature == 0) return chain;
  if (options.mirostat != 0) {
    chain.draw = {Stage::temperature, Stage::mirostat};  // in place of the filters
  } else if (options.order == ChainOrder::llama_cpp) {
    chain.draw = those_on(options, kLlamaCppDraw);
  } else {
    chain.draw = vllm ? those_on(options, kVllmDraw) : those_on(options, kDraw);
  }
  return chain;
}

std::vector<std::string> stage_names(const SamplingOptions& options) {
  const Chain chain = chain_of(options);
  std::vector<std::string> names;
  for (const Stage stage : chain.processors) names.push_back(stage_name(stage));
  for (const Stage stage : chain.draw) {
    names.push_back(stage_name(stage));
    if (stage == Stage::temperature && options.dynatemp_range > 0) {
      names.push_back("dynatemp_range");
    }
  }
  names.push_back(chain.draw.empty() ? "greedy" : "draw");
  return names;
}

ChainOrder chain_order(const std::string& name) {
  for (const ChainOrder order : {ChainOrder::hf, ChainOrder::vllm, ChainOrder::llama_cpp}) {
    if (name == chain_order_name(order)) return order;
  }
  throw InvalidArgument("sampling_order: found \"" + name +
                        "\", expected \"hf\", \"vllm\" or \"llama.cpp\"");
}

const char* chain_order_name(ChainOrder order) {
  switch (order) {
    case ChainOrder::hf:
      return "hf";
    case ChainOrder::vllm:
      return "vllm";
    case ChainOrder::llama_cpp:
      return "llama.cpp";
  }
  return "";
}

}  // namespace onward
