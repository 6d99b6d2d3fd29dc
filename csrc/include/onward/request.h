// Part of onward/onward.h: a request for Engine::submit, with vectors and functions instead of
// pointers. `onward doctor --docs generation` explains the options. onward_c.h lists the fields
// that come from C structs.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "onward/onward_c.h"
#include "onward/span.h"

namespace onward {
inline namespace v1 {

// All fields of onward_sampling. Each pointer of the C struct is replaced by a member of the same
// name that owns its values; the counts of the C struct are ignored.
struct Sampling : onward_sampling {
  Sampling() noexcept : onward_sampling() { onward_sampling_init(this); }
  std::string order;  // "": the default; otherwise "hf", "vllm" or "llama.cpp"
  std::vector<onward_logit_bias> logit_bias;
  std::vector<std::int32_t> suppress_tokens;
  std::optional<std::vector<std::int32_t>> allowed_token_ids;  // nullopt: all are allowed
};

struct Beams : onward_beams {
  Beams() noexcept : onward_beams() { onward_beams_init(this); }
};

// Changes the scores of the whole vocabulary; -infinity bans a token. `tokens` is the prompt
// followed by the output.
using ScoreRule = std::function<void(Span<const std::int32_t> tokens, Span<float> scores)>;
// Returns whether the output ends with its last token. `tokens` is the prompt followed by the
// output.
using EndRule = std::function<bool(Span<const std::int32_t> tokens)>;

// A prompt and its options. Each setter returns the request, so calls can be chained. Rules run on
// the thread that steps and must not call the engine. If a rule throws, the request ends with an
// error event that carries the exception.
class Request {
 public:
  explicit Request(std::vector<std::int32_t> prompt) : fields_(), prompt_(std::move(prompt)) {
    onward_request_init(&fields_);
  }

  Request& max_new_tokens(std::int64_t count) { return fields_.max_new_tokens = count, *this; }
  Request& min_new_tokens(std::int64_t count) { return fields_.min_new_tokens = count, *this; }
  // The model's own end tokens do not end an output.
  Request& ignore_eos(bool on = true) { return fields_.ignore_eos = on ? 1 : 0, *this; }
  // Further tokens that end an output.
  Request& stop_token_ids(std::vector<std::int32_t> ids) {
    return stop_token_ids_ = std::move(ids), *this;
  }
  Request& sampling(Sampling sampling) { return sampling_ = std::move(sampling), *this; }
  Request& beams(const Beams& beams) { return beams_ = beams, *this; }
  // Number of outputs of the prompt, each with its own random numbers.
  Request& num_sequences(std::int64_t count) { return fields_.num_sequences = count, *this; }
  // Number of tokens to guess in each step from the text so far; 0: off.
  Request& lookup_tokens(std::int64_t count) { return fields_.lookup_tokens = count, *this; }
  // Log-probabilities of the chosen token and of the `count` most likely tokens; -1: none.
  Request& logprobs(std::int64_t count) { return fields_.logprobs = count, *this; }
  // A higher value is served first.
  Request& priority(std::int64_t priority) { return fields_.priority = priority, *this; }
  // false: every step computes all positions again.
  Request& cache(bool on) { return fields_.cache = on ? 1 : 0, *this; }
  Request& score_rule(ScoreRule rule) { return score_rule_ = std::move(rule), *this; }
  Request& end_rule(EndRule rule) { return end_rule_ = std::move(rule), *this; }

 private:
  friend class Engine;

  // The rules, which the library calls until the request has ended, and the exception of a rule.
  struct Rules {
    ScoreRule score;
    EndRule end;
    std::exception_ptr thrown;

    static onward_status call_score(void* context, const std::int32_t* tokens,
                                    std::size_t num_tokens, float* scores,
                                    std::size_t vocab_size) noexcept {
      Rules& rules = *static_cast<Rules*>(context);
      try {
        rules.score({tokens, num_tokens}, {scores, vocab_size});
        return ONWARD_OK;
      } catch (...) {
        rules.thrown = std::current_exception();
        return ONWARD_INVALID_ARGUMENT;
      }
    }

    static std::int32_t call_end(void* context, const std::int32_t* tokens,
                                 std::size_t num_tokens) noexcept {
      Rules& rules = *static_cast<Rules*>(context);
      try {
        return rules.end({tokens, num_tokens}) ? 1 : 0;
      } catch (...) {
        rules.thrown = std::current_exception();
        return -1;
      }
    }
  };

  std::int64_t num_sequences() const noexcept {
    return beams_ ? beams_->num_return_sequences : fields_.num_sequences;
  }

  // Calls body(request) with the C struct. Its pointers are valid during the call; the pointer to
  // `rules` is valid as long as `rules`.
  template <typename Body>
  void lend(Rules* rules, const Body& body) const {
    onward_request request = fields_;
    request.prompt = prompt_.data();
    request.prompt_tokens = prompt_.size();
    request.stop_token_ids = stop_token_ids_.data();
    request.num_stop_token_ids = stop_token_ids_.size();
    onward_sampling sampling = {};
    if (sampling_) {
      sampling = *sampling_;  // the base class, which is the C struct
      sampling.order = sampling_->order.empty() ? nullptr : sampling_->order.c_str();
      sampling.logit_bias = sampling_->logit_bias.data();
      sampling.num_logit_bias = sampling_->logit_bias.size();
      sampling.suppress_tokens = sampling_->suppress_tokens.data();
      sampling.num_suppress_tokens = sampling_->suppress_tokens.size();
      // An empty list bans every token; null allows all. So an empty list must not be null.
      static const std::int32_t empty_list = 0;
      const auto& allowed = sampling_->allowed_token_ids;
      sampling.allowed_token_ids =
          !allowed ? nullptr : (allowed->empty() ? &empty_list : allowed->data());
      sampling.num_allowed_token_ids = allowed ? allowed->size() : 0;
      request.sampling = &sampling;
    }
    if (beams_) request.beams = &*beams_;
    if (rules != nullptr && rules->score) {
      request.score_rule = &Rules::call_score;
      request.score_rule_context = rules;
    }
    if (rules != nullptr && rules->end) {
      request.end_rule = &Rules::call_end;
      request.end_rule_context = rules;
    }
    body(request);
  }

  onward_request fields_;  // without its pointers
  std::vector<std::int32_t> prompt_;
  std::vector<std::int32_t> stop_token_ids_;
  std::optional<Sampling> sampling_;
  std::optional<Beams> beams_;
  ScoreRule score_rule_;
  EndRule end_rule_;
};

}  // namespace v1
}  // namespace onward
