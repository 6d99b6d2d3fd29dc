// Handles of the C interface for engines that exist already. The extension module uses this to give
// native code access to its engine. Private to this library.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/shared_engine.h"

namespace onward::capi {

// The value of a new onward_engine, which is a client of its own. eos_token_ids: the tokens of the
// model that end an output.
uintptr_t open_engine_handle(std::shared_ptr<SharedEngine> engine,
                             std::vector<int32_t> eos_token_ids);

}  // namespace onward::capi
