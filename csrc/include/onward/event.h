// Part of onward/onward.h: what an engine tells: events with strings and vectors of their own, and
// the figures of its steps. The fields are those of the C structs in onward_c.h.
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

// One token of one sequence, or an end, or both.
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
  // Throws what a rule of the request threw, or the error that it ended with; else does nothing.
  void throw_if_failed() const {
    if (thrown) std::rethrow_exception(thrown);
    if (status != ONWARD_OK) throw_error(status, message);
  }

  std::int64_t request = 0;
  std::int64_t sequence = 0;         // of the request; with beams the rank of the hypothesis
  std::int32_t token = -1;           // -1: the event carries none
  Finish finish = Finish::none;      // of the sequence
  bool ends_request = false;         // no event of the request follows
  onward_status status = ONWARD_OK;  // of a request that ended with an error
  std::string message;               // beside a status
  std::exception_ptr thrown;         // by a rule of the request, where that is why it ended
  double score = 0;                  // of a finished hypothesis, else NaN
  double logprob = 0;                // by the model alone, where asked for, else NaN
  double chain_logprob = 0;          // the same after the chain of processors and filters
  std::vector<ScoredToken> top;      // the likeliest by the model alone, best first
  std::int64_t cached_tokens = -1;   // of the prompt, not computed again: once a request, else -1
  double time = 0;                   // seconds of the system's steady clock
};

}  // namespace v1
}  // namespace onward
