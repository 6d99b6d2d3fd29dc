// Part of onward/onward.h: the statuses of the C interface as exceptions. Each exception carries
// the message of the library, `where: what, found, expected`.
#pragma once

#include <stdexcept>
#include <string>

#include "onward/onward_c.h"

namespace onward {
inline namespace v1 {

// The base class. It is thrown itself for a status that this header does not know.
class Error : public std::runtime_error {
 public:
  Error(onward_status status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  onward_status status() const noexcept { return status_; }

 private:
  onward_status status_;
};

// One class for each status except ONWARD_OK.
template <onward_status kStatus>
class StatusError : public Error {
 public:
  explicit StatusError(const std::string& message) : Error(kStatus, message) {}
};

using InvalidArgument = StatusError<ONWARD_INVALID_ARGUMENT>;
using Closed = StatusError<ONWARD_CLOSED>;
using IoError = StatusError<ONWARD_IO_ERROR>;
using PackError = StatusError<ONWARD_PACK_ERROR>;
using NoMemory = StatusError<ONWARD_NO_MEMORY>;
using NumericsError = StatusError<ONWARD_NUMERICS_ERROR>;
using Interrupted = StatusError<ONWARD_INTERRUPTED>;
using InternalError = StatusError<ONWARD_INTERNAL_ERROR>;
using DeviceError = StatusError<ONWARD_DEVICE_ERROR>;

[[noreturn]] inline void throw_error(onward_status status, const std::string& message) {
  switch (status) {
    case ONWARD_INVALID_ARGUMENT:
      throw InvalidArgument(message);
    case ONWARD_CLOSED:
      throw Closed(message);
    case ONWARD_IO_ERROR:
      throw IoError(message);
    case ONWARD_PACK_ERROR:
      throw PackError(message);
    case ONWARD_NO_MEMORY:
      throw NoMemory(message);
    case ONWARD_NUMERICS_ERROR:
      throw NumericsError(message);
    case ONWARD_INTERRUPTED:
      throw Interrupted(message);
    case ONWARD_INTERNAL_ERROR:
      throw InternalError(message);
    case ONWARD_DEVICE_ERROR:
      throw DeviceError(message);
    default:
      throw Error(status, message);
  }
}

// Throws if the status of a call is an error. Call it on the thread that made the call.
inline void check(onward_status status) {
  if (status != ONWARD_OK) throw_error(status, onward_last_error());
}

}  // namespace v1
}  // namespace onward
