// From exceptions to statuses: the border that no exception crosses, and the last error of each
// thread. Knows the errors; not what the functions do.
#pragma once

#include <exception>
#include <string>

#include "base/error.h"
#include "onward/onward_c.h"

namespace onward::capi {

// What a caller's rule said: a status of its own.
class RuleFailed : public Error {
 public:
  RuleFailed(onward_status status, const std::string& message) : Error(message), status(status) {}
  const onward_status status;
};

// The status of an exception, and its message where there is memory for it.
onward_status status_of(const std::exception_ptr& failure, std::string& message) noexcept;

// Of the exception that is being handled; becomes the thread's last error.
onward_status note_failure() noexcept;

// Runs body, and turns what it throws into a status.
template <typename Body>
onward_status guarded(const Body& body) noexcept {
  try {
    body();
    return ONWARD_OK;
  } catch (...) {
    return note_failure();
  }
}

// InvalidArgument where a pointer that has to be there is null.
void require_pointer(const char* name, const void* pointer);

}  // namespace onward::capi
