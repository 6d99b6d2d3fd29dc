// Turns exceptions into statuses, and keeps the last error message of each thread.
#pragma once

#include <exception>
#include <string>

#include "base/error.h"
#include "onward/onward_c.h"

namespace onward::capi {

// A caller's rule returned this status.
class RuleFailed : public Error {
 public:
  RuleFailed(onward_status status, const std::string& message) : Error(message), status(status) {}
  const onward_status status;
};

// The status of an exception, and its message if there is memory for it.
onward_status status_of(const std::exception_ptr& failure, std::string& message) noexcept;

// The status of the exception being handled, which becomes the thread's last error.
onward_status note_failure() noexcept;

// Runs body and turns its exception, if any, into a status.
template <typename Body>
onward_status guarded(const Body& body) noexcept {
  try {
    body();
    return ONWARD_OK;
  } catch (...) {
    return note_failure();
  }
}

// InvalidArgument if a required pointer is null.
void require_pointer(const char* name, const void* pointer);

}  // namespace onward::capi
