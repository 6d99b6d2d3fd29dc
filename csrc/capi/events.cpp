#include "capi/events.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "capi/status.h"

namespace onward::capi {
namespace {

int32_t finish_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::none:
      return ONWARD_FINISH_NONE;
    case FinishReason::stop:
      return ONWARD_FINISH_STOP;
    case FinishReason::length:
      return ONWARD_FINISH_LENGTH;
    case FinishReason::error:
      return ONWARD_FINISH_ERROR;
  }
  return ONWARD_FINISH_NONE;
}

}  // namespace

void ToldEvents::write(const std::vector<Event>& events, onward_event* array, size_t event_size) {
  size_t tokens = 0, failures = 0;
  for (const Event& event : events) {
    if (event.logprobs) tokens += event.logprobs->raw_top.size();
    if (event.failure) ++failures;
  }
  top_.clear();
  messages_.clear();
  top_.reserve(tokens);  // what is pointed to does not move
  messages_.reserve(failures);
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  auto* to = reinterpret_cast<char*>(array);
  for (const Event& event : events) {
    onward_event told{};
    told.request = event.request;
    told.sequence = event.sequence;
    told.token = event.token;
    told.finish = finish_of(event.finish);
    told.ends_request = event.ends_request ? 1 : 0;
    told.message = "";
    told.score = event.score;
    told.logprob = told.chain_logprob = kNone;
    told.cached_tokens = event.cached_tokens;
    told.time = event.time;
    if (event.failure) {
      messages_.emplace_back();
      told.status = status_of(event.failure, messages_.back());
      told.message = messages_.back().c_str();
    }
    if (event.logprobs) {
      told.logprob = event.logprobs->raw;
      told.chain_logprob = event.logprobs->chain;
      told.num_top = event.logprobs->raw_top.size();
      if (told.num_top > 0) told.top = top_.data() + top_.size();
      for (const ScoredToken& token : event.logprobs->raw_top) {
        top_.push_back({token.id, static_cast<double>(token.score)});
      }
    }
    const size_t known = std::min(event_size, sizeof told);
    std::memcpy(to, &told, known);
    std::memset(to + known, 0, event_size - known);
    to += event_size;
  }
}

}  // namespace onward::capi
