// Events as the caller reads them, and the memory that they point to. Knows events; no engine.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/request.h"
#include "onward/onward_c.h"

namespace onward::capi {

// Of one thread: what its last step's events point to.
class ToldEvents {
 public:
  // Writes events into an array of structs of `event_size` bytes each. May throw for want of
  // memory, before it has written anything.
  void write(const std::vector<Event>& events, onward_event* array, size_t event_size);

 private:
  std::vector<onward_scored_token> top_;
  std::vector<std::string> messages_;
};

}  // namespace onward::capi
