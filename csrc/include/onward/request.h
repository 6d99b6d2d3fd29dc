// Part of onward/onward.h: what a caller asks for, with vectors and functions in the place of
// pointers. Knows no engine: Engine::submit hands it in. `onward doctor --docs generation`
// explains the options; the fields that come from C structs are listed in onward_c.h.
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

// All fields of onward_sampling; those that are pointers there are replaced here by members of the
// same name that own what they hold, and the counts beside them are ignored.
struct Sampling : onward_sampling {
  Sampling() noexcept : onward_sampling() { onward_sampling_init(this); }
  std::string order;  // "": the default; else "hf", "vllm" or "llama.cpp"
  std::vector<onward_logit_bias> logit_bias;
  std::vector<std::int32_t> suppress_tokens;
  std::optional<std::vector<std::int32_t>> allowed_token_ids;  // none: all are allowed
};

struct Beams : onward_beams {
  Beams() noexcept : onward_beams() { onward_beams_init(this); }
};

// Changes the scores of the whole vocabulary: -infinity bans a token. tokens: prompt, then output.
using ScoreRule = std::function<void(Span<const std::int32_t> tokens, Span<float> scores)>;
// Whether an output is at its end. tokens: prompt, then output, the last one included.
using EndRule = std::function<bool(Span<const std::int32_t> tokens)>;

// Rules run on the thread that steps, must not call the engine, and may throw: then the request
// ends with an error event that carries what they threw.
class Request {
 public:
  explicit Request(std::vector<std::int32_t> prompt) : fields_(), prompt_(std::move(prompt)) {
    onward_request_init(&fields_);
  }

  Request& max_new_tokens(std::int64_t count) { return fields_.max_new_tokens = count, *this; }
  Request& min_new_tokens(std::int64_t count) { return fields_.min_new_tokens = count, *this; }
  // The model's own end tokens do not end an output.
  Request& ignore_eos(bool on = true) { return fields_.ignore_eos = on ? 1 : 0, *this; }
  // That end an output besides.
  Request& stop_token_ids(std::vector<std::int32_t> ids) {
    return stop_token_ids_ = std::move(ids), *this;
  }
  Request& sampling(Sampling sampling) { return sampling_ = std::move(sampling), *this; }
  Request& beams(const Beams& beams) { return beams_ = beams, *this; }
  // That continue the prompt, each with draws of its own.
  Request& num_sequences(std::int64_t count) { return fields_.num_sequences = count, *this; }
  // Guessed from the text so far and checked; 0: off.
  Request& lookup_tokens(std::int64_t count) { return fields_.lookup_tokens = count, *this; }
  // Of the chosen token and of the `count` likeliest; -1: none.
  Request& logprobs(std::int64_t count) { return fields_.logprobs = count, *this; }
  // Higher goes first.
  Request& priority(std::int64_t priority) { return fields_.priority = priority, *this; }
  // false: every step computes all positions again.
  Request& cache(bool on) { return fields_.cache = on ? 1 : 0, *this; }
  Request& score_rule(ScoreRule rule) { return score_rule_ = std::move(rule), *this; }
  Request& end_rule(EndRule rule) { return end_rule_ = std::move(rule), *this; }

 private:
  friend class Engine;

  // What the library points to until the request has ended, and what a rule has thrown.
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

  // Calls body(request) with the C struct, whose pointers are good during the call; those to rules
  // as long as these.
  template <typename Body>
  void lend(Rules* rules, const Body& body) const {
    onward_request request = fields_;
    request.prompt = prompt_.data();
    request.prompt_tokens = prompt_.size();
    request.stop_token_ids = stop_token_ids_.data();
    request.num_stop_token_ids = stop_token_ids_.size();
    onward_sampling sampling = {};
    if (sampling_) {
      sampling = *sampling_;  // the C part of it
      sampling.order = sampling_->order.empty() ? nullptr : sampling_->order.c_str();
      sampling.logit_bias = sampling_->logit_bias.data();
      sampling.num_logit_bias = sampling_->logit_bias.size();
      sampling.suppress_tokens = sampling_->suppress_tokens.data();
      sampling.num_suppress_tokens = sampling_->suppress_tokens.size();
      // A list of nobody allows nobody, so it must not look like null, which allows all.
      static const std::int32_t nobody = 0;
      const auto& allowed = sampling_->allowed_token_ids;
      sampling.allowed_token_ids =
          !allowed ? nullptr : (allowed->empty() ? &nobody : allowed->data());
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
