// Typed errors of the core. A message has the form `where: what is wrong, found, expected`. Each
// class is a Python exception of the same name in the bindings, and a status in the C interface.
#pragma once

#include <stdexcept>
#include <string>

namespace onward {

// The base class of all errors of onward.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
  ~Error() override;
};

// A value that the caller passed cannot be used (Python: also a ValueError).
class InvalidArgument : public Error {
 public:
  using Error::Error;
  ~InvalidArgument() override;
};

// The cache cannot hold these tokens: no room, no prefix cache, or some of their blocks are absent.
class NotCached : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
  ~NotCached() override;
};

// A weight is missing, misshapen or of an unknown dtype.
class WeightError : public Error {
 public:
  using Error::Error;
  ~WeightError() override;
};

// A file cannot be opened or read.
class IoError : public Error {
 public:
  using Error::Error;
  ~IoError() override;
};

// A file is not a pack, is damaged, or has another layout.
class PackError : public Error {
 public:
  using Error::Error;
  ~PackError() override;
};

// The logits contain NaN or infinity.
class NumericsError : public Error {
 public:
  using Error::Error;
  ~NumericsError() override;
};

// A device does not exist, cannot be used, or failed in a call.
class DeviceError : public Error {
 public:
  using Error::Error;
  ~DeviceError() override;
};

// The poll function of the caller stopped the running step.
class Interrupted : public Error {
 public:
  Interrupted() : Error("engine: step interrupted by the caller") {}
  ~Interrupted() override;
};

// The caller's client of an engine was closed, or the process forked while another thread was
// inside a step.
class Closed : public Error {
 public:
  using Error::Error;
  ~Closed() override;
};

}  // namespace onward
