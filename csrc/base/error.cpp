// Destructors out of line: one home for each class's type information, so that an exception thrown
// in libonward.so is caught by type in the extension module.
#include "base/error.h"

namespace onward {

Error::~Error() = default;
InvalidArgument::~InvalidArgument() = default;
WeightError::~WeightError() = default;
IoError::~IoError() = default;
PackError::~PackError() = default;
NumericsError::~NumericsError() = default;
DeviceError::~DeviceError() = default;
Interrupted::~Interrupted() = default;
Closed::~Closed() = default;

}  // namespace onward
