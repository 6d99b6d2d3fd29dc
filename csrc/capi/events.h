// Events as structs of the C interface, and the memory that these point to.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/request.h"
#include "onward/onward_c.h"

namespace onward::capi {

// The events of one thread's last step.
class WrittenEvents {
 public:
  // Writes events into an array of structs of `event_size` bytes each. If memory runs out, it
  // throws before it writes.
  void write(const std::vector<Event>& events, onward_event* array, size_t event_size);

 private:
  std::vector<onward_scored_token> top_;
  std::vector<std::string> messages_;
};

}  // namespace onward::capi
