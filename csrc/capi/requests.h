// A caller's request as the core's: what its structs say, checked where the core could not any
// more. What the options mean, and their ranges, are the core's matter.
#pragma once

#include "engine/request.h"
#include "onward/onward_c.h"
#include "pack/pack.h"

namespace onward::capi {

// max_context: tokens of prompt and output that the engine takes.
Request read_request(const onward_request* given, const Pack& pack, int64_t max_context);

}  // namespace onward::capi
