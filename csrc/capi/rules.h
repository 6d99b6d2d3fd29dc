// The caller's rules, which are C functions, as rules of the core.
#pragma once

#include <memory>

#include "onward/onward_c.h"
#include "sampling/rules.h"

namespace onward::capi {

// Null for a null function.
std::shared_ptr<ScoreRule> score_rule(onward_score_rule rule, void* context);
std::shared_ptr<EndRule> end_rule(onward_end_rule rule, void* context);

}  // namespace onward::capi
