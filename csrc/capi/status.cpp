#include "capi/status.h"

#include <array>
#include <new>
#include <stdexcept>

#include "onward/version.h"

namespace onward::capi {
namespace {

constexpr std::array<const char*, 10> kNames = {"ONWARD_OK",
                                                "ONWARD_INVALID_ARGUMENT",
                                                "ONWARD_CLOSED",
                                                "ONWARD_IO_ERROR",
                                                "ONWARD_PACK_ERROR",
                                                "ONWARD_NO_MEMORY",
                                                "ONWARD_NUMERICS_ERROR",
                                                "ONWARD_INTERRUPTED",
                                                "ONWARD_INTERNAL_ERROR",
                                                "ONWARD_DEVICE_ERROR"};

// `plain` replaces the text if there is no memory for it.
struct LastError {
  std::string text;
  const char* plain = "";
};
thread_local LastError last_error;

}  // namespace

onward_status status_of(const std::exception_ptr& failure, std::string& message) noexcept {
  onward_status status = ONWARD_INTERNAL_ERROR;
  const auto take = [&](onward_status found, const char* text) {
    status = found;
    try {
      message = text;
    } catch (...) {
      message.clear();
    }
  };
  try {
    std::rethrow_exception(failure);
  } catch (const RuleFailed& error) {
    take(error.status, error.what());
  } catch (const InvalidArgument& error) {
    take(ONWARD_INVALID_ARGUMENT, error.what());
  } catch (const Closed& error) {
    take(ONWARD_CLOSED, error.what());
  } catch (const IoError& error) {
    take(ONWARD_IO_ERROR, error.what());
  } catch (const PackError& error) {
    take(ONWARD_PACK_ERROR, error.what());
  } catch (const WeightError& error) {
    take(ONWARD_PACK_ERROR, error.what());
  } catch (const NumericsError& error) {
    take(ONWARD_NUMERICS_ERROR, error.what());
  } catch (const DeviceError& error) {
    take(ONWARD_DEVICE_ERROR, error.what());
  } catch (const Interrupted& error) {
    take(ONWARD_INTERRUPTED, error.what());
  } catch (const std::bad_alloc&) {
    take(ONWARD_NO_MEMORY, "memory: not enough for this call");
  } catch (const std::length_error&) {
    take(ONWARD_NO_MEMORY, "memory: the size is larger than any memory");
  } catch (const std::exception& error) {
    take(ONWARD_INTERNAL_ERROR, error.what());
  } catch (...) {
    take(ONWARD_INTERNAL_ERROR, "an exception of an unknown type");
  }
  return status;
}

onward_status note_failure() noexcept {
  last_error.text.clear();
  const onward_status status = status_of(std::current_exception(), last_error.text);
  last_error.plain = kNames[static_cast<size_t>(status)];
  return status;
}

void require_pointer(const char* name, const void* pointer) {
  if (pointer == nullptr) {
    std::string message = name;
    throw InvalidArgument(message += ": is null, expected a pointer");
  }
}

}  // namespace onward::capi

using onward::capi::kNames;
using onward::capi::last_error;

const char* onward_version(void) { return ONWARD_VERSION; }

const char* onward_status_name(onward_status status) {
  const bool known = status >= 0 && static_cast<size_t>(status) < kNames.size();
  return known ? kNames[static_cast<size_t>(status)] : "an unknown status";
}

const char* onward_last_error(void) {
  return last_error.text.empty() ? last_error.plain : last_error.text.c_str();
}
