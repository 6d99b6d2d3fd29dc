// Names of what keys and values are kept in. Knows names; not what a codec does.
#pragma once

#include <string>

#include "backend/cache_layout.h"

namespace onward {

// InvalidArgument naming the option for a name that there is not.
KvCodec kv_codec(const char* option, const std::string& name);

}  // namespace onward
