// Part of onward/onward.h: the events of an engine, which own their strings and vectors, and the
// statistics of its steps. The fields come from the C structs in onward_c.h.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "onward/error.h"
#include "onward/onward_c.h"

namespace onward {
inline namespace v1 {

enum class Finish : std::int32_t {
  none = ONWARD_FINISH_NONE,
  stop = ONWARD_FINISH_STOP,
  length = ONWARD_FINISH_LENGTH,
  error = ONWARD_FINISH_ERROR
};

using ScoredToken = onward_scored_token;
using Stats = onward_stats;
using StepTrace = onward_step_trace;

// A token of a sequence, the end of a sequence, or both.
struct Event {
  Event() = default;
  explicit Event(const onward_event& event)
      : request(event.request),
        sequence(event.sequence),
        token(event.token),
        finish(static_cast<Finish>(event.finish)),
        ends_request(event.ends_request != 0),
        status(event.status),
        message(event.message),
        score(event.score),
        logprob(event.logprob),
        chain_logprob(event.chain_logprob),
        top(event.top, event.top + event.num_top),
        cached_tokens(event.cached_tokens),
        time(event.time) {}

  bool has_token() const noexcept { return token >= 0; }
  // Throws the exception of a rule of the request, or the error that ended the request. Otherwise
  // does nothing.
  void throw_if_failed() const {
    if (thrown) std::rethrow_exception(thrown);
    if (status != ONWARD_OK) throw_error(status, message);
  }

  std::int64_t request = 0;
  std::int64_t sequence = 0;         // number in the request; with beams the rank
  std::int32_t token = -1;           // -1: the event has no token
  Finish finish = Finish::none;      // of the sequence
  bool ends_request = false;         // true: this is the last event of the request
  onward_status status = ONWARD_OK;  // the error that ended the request
  std::string message;               // the message of the error
  std::exception_ptr thrown;         // the exception of a rule, if it ended the request
  double score = 0;                  // of a finished hypothesis, otherwise NaN
  double logprob = 0;                // in the model's distribution; NaN if not requested
  double chain_logprob = 0;          // the same after the chain of processors and filters
  std::vector<ScoredToken> top;      // the most likely tokens of the model, best first
  std::int64_t cached_tokens = -1;   // prompt tokens from the cache, in one event; else -1
  double time = 0;                   // in seconds, of the system's steady clock
};

}  // namespace v1
}  // namespace onward
