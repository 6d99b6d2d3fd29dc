// Reads a caller's request into a request of the core. Sizes, pointers and flags are checked here;
// the core checks the values of options.
#pragma once

#include "engine/request.h"
#include "onward/onward_c.h"
#include "pack/pack.h"

namespace onward::capi {

// max_context: the largest number of tokens in prompt and output.
Request read_request(const onward_request* given, const Pack& pack, int64_t max_context);

}  // namespace onward::capi
