// The destructors of the errors. They are defined here so that the type information of each class
// is in one library, and the extension module can catch an exception of libonward.so by its type.
#include "base/error.h"

namespace onward {

Error::~Error() = default;
InvalidArgument::~InvalidArgument() = default;
NotCached::~NotCached() = default;
WeightError::~WeightError() = default;
IoError::~IoError() = default;
PackError::~PackError() = default;
NumericsError::~NumericsError() = default;
DeviceError::~DeviceError() = default;
Interrupted::~Interrupted() = default;
Closed::~Closed() = default;

}  // namespace onward
