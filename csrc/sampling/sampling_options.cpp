#include "sampling/sampling_options.h"

#include <cmath>
#include <limits>
#include <sstream>

#include "base/error.h"

namespace onward {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename Found>
void require(bool condition, const char* name, Found found, const char* expected) {
  if (condition) return;
  std::ostringstream message;
  message << name << ": found " << found << ", expected " << expected;
  throw InvalidArgument(message.str());
}

void require_finite(const char* name, double found) {
  require(std::isfinite(found), name, found, "a finite number");
}

void require_positive_or_zero(const char* name, double found) {
  require(std::isfinite(found) && found >= 0, name, found, "a finite number of at least 0");
}

void require_share(const char* name, double found) {
  require(found >= 0 && found <= 1, name, found, "a number from 0 to 1");
}

void require_id(const char* name, int64_t id, int64_t vocab_size) {
  if (id >= 0 && id < vocab_size) return;
  throw InvalidArgument(std::string(name) + ": found token id " + std::to_string(id) +
                        ", outside the vocabulary, expected 0 to " +
                        std::to_string(vocab_size - 1));
}

void require_ids(const char* name, const std::vector<int32_t>& ids, int64_t vocab_size) {
  for (const int32_t id : ids) require_id(name, id, vocab_size);
}

}  // namespace

void SamplingOptions::validate(int64_t vocab_size) const {
  for (const auto& [id, bias] : logit_bias) {
    require_id("logit_bias", id, vocab_size);
    require(bias < kInfinity, "logit_bias", bias, "a finite number, or -inf");  // NaN is not less
  }
  require(std::isfinite(repetition_penalty) && repetition_penalty > 0, "repetition_penalty",
          repetition_penalty, "a finite number above 0");
  require_finite("presence_penalty", presence_penalty);
  require_finite("frequency_penalty", frequency_penalty);
  require_positive_or_zero("dry_multiplier", dry_multiplier);
  require(std::isfinite(dry_base) && dry_base >= 1, "dry_base", dry_base,
          "a finite number of at least 1");
  require(dry_allowed_length >= 1, "dry_allowed_length", dry_allowed_length, "at least 1");
  require_ids("dry_sequence_breakers", dry_sequence_breakers, vocab_size);
  require(no_repeat_ngram_size >= 0, "no_repeat_ngram_size", no_repeat_ngram_size,
          "at least 0 (0 is off)");
  for (const std::vector<int32_t>& words : bad_words_ids) {
    require(!words.empty(), "bad_words_ids", "an empty list", "token ids");
    require_ids("bad_words_ids", words, vocab_size);
  }
  if (allowed_token_ids) {
    require(!allowed_token_ids->empty(), "allowed_token_ids", "an empty list",
            "at least one token id");
    require_ids("allowed_token_ids", *allowed_token_ids, vocab_size);
  }
  require_ids("suppress_tokens", suppress_tokens, vocab_size);
  require_ids("stop_token_ids", stop_token_ids, vocab_size);
  require(min_new_tokens >= 0, "min_new_tokens", min_new_tokens, "at least 0");

  require_positive_or_zero("temperature", temperature);
  require_positive_or_zero("dynatemp_range", dynatemp_range);
  require_positive_or_zero("dynatemp_exponent", dynatemp_exponent);
  require_positive_or_zero("top_n_sigma", top_n_sigma);
  require(top_k >= 0, "top_k", top_k, "at least 0 (0 is off)");
  require_share("top_p", top_p);
  require_share("min_p", min_p);
  require(typical_p > 0 && typical_p <= 1, "typical_p", typical_p, "a number above 0, at most 1");
  require_share("epsilon_cutoff", epsilon_cutoff);
  require_share("eta_cutoff", eta_cutoff);
  require_share("xtc_probability", xtc_probability);
  require_share("xtc_threshold", xtc_threshold);
  require(mirostat == 0 || mirostat == 2, "mirostat", mirostat, "0 (off) or 2");
  require_positive_or_zero("mirostat_tau", mirostat_tau);
  require_positive_or_zero("mirostat_eta", mirostat_eta);
  require(logprobs >= -1, "logprobs", logprobs, "at least 0, or -1 for none");
}

}  // namespace onward
