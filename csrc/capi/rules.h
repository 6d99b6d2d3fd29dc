// The caller's rules, C functions, as the core's. Knows nothing of what they do.
#pragma once

#include <memory>

#include "onward/onward_c.h"
#include "sampling/rules.h"

namespace onward::capi {

// Null where there is none.
std::shared_ptr<ScoreRule> score_rule(onward_score_rule rule, void* context);
std::shared_ptr<EndRule> end_rule(onward_end_rule rule, void* context);

}  // namespace onward::capi
