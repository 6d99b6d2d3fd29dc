// Typed errors of the core. Each message reads `where: what is wrong, found, expected`. The
// bindings turn each class into the Python exception of that name, the C interface into a status.
#pragma once

#include <stdexcept>
#include <string>

namespace onward {

// Base of everything that onward throws on purpose.
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

// A weight is missing, misshapen or of an unknown dtype.
class WeightError : public Error {
 public:
  using Error::Error;
  ~WeightError() override;
};

// A file that cannot be opened or read.
class IoError : public Error {
 public:
  using Error::Error;
  ~IoError() override;
};

// A file that is no pack, a damaged one, or one of another layout.
class PackError : public Error {
 public:
  using Error::Error;
  ~PackError() override;
};

// The arithmetic left the finite numbers: NaN or infinity in the logits.
class NumericsError : public Error {
 public:
  using Error::Error;
  ~NumericsError() override;
};

// A device that is not there, that cannot be used, or that failed in a call.
class DeviceError : public Error {
 public:
  using Error::Error;
  ~DeviceError() override;
};

// The caller's poll function asked for the running step to be given up.
class Interrupted : public Error {
 public:
  Interrupted() : Error("engine: step interrupted by the caller") {}
  ~Interrupted() override;
};

// What was asked for is gone: the caller's place in an engine was closed, or its process forked at
// the wrong moment.
class Closed : public Error {
 public:
  using Error::Error;
  ~Closed() override;
};

}  // namespace onward
