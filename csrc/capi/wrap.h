// Handles of the C interface for what this process has already: how the extension module lets
// native code into its engine. Not for other programs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/shared_engine.h"

namespace onward::capi {

// The value of a new onward_engine: a client of its own. eos_token_ids: those of the model, which
// end an output.
uintptr_t open_engine_handle(std::shared_ptr<SharedEngine> engine,
                             std::vector<int32_t> eos_token_ids);

}  // namespace onward::capi
