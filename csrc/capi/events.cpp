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

void WrittenEvents::write(const std::vector<Event>& events, onward_event* array,
                          size_t event_size) {
  size_t tokens = 0, failures = 0;
  for (const Event& event : events) {
    if (event.logprobs) tokens += event.logprobs->raw_top.size();
    if (event.failure) ++failures;
  }
  top_.clear();
  messages_.clear();
  top_.reserve(tokens);  // so that pointers to it stay valid
  messages_.reserve(failures);
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  auto* to = reinterpret_cast<char*>(array);
  for (const Event& event : events) {
    onward_event written{};
    written.request = event.request;
    written.sequence = event.sequence;
    written.token = event.token;
    written.finish = finish_of(event.finish);
    written.ends_request = event.ends_request ? 1 : 0;
    written.message = "";
    written.score = event.score;
    written.logprob = written.chain_logprob = kNone;
    written.cached_tokens = event.cached_tokens;
    written.time = event.time;
    if (event.failure) {
      messages_.emplace_back();
      written.status = status_of(event.failure, messages_.back());
      written.message = messages_.back().c_str();
    }
    if (event.logprobs) {
      written.logprob = event.logprobs->raw;
      written.chain_logprob = event.logprobs->chain;
      written.num_top = event.logprobs->raw_top.size();
      if (written.num_top > 0) written.top = top_.data() + top_.size();
      for (const ScoredToken& token : event.logprobs->raw_top) {
        top_.push_back({token.id, static_cast<double>(token.score)});
      }
    }
    const size_t known = std::min(event_size, sizeof written);
    std::memcpy(to, &written, known);
    std::memset(to + known, 0, event_size - known);
    to += event_size;
  }
}

}  // namespace onward::capi
