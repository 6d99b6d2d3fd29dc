// Rules of the caller as Python callables that take numpy arrays.
#pragma once

#include <pybind11/numpy.h>

#include <memory>

#include "sampling/rules.h"

namespace onward {

// rule(token_ids, scores) changes scores in place; its result is ignored. None: no rule.
std::shared_ptr<ScoreRule> score_rule(pybind11::object rule);
// rule(token_ids) returns whether the output ends here.
std::shared_ptr<EndRule> end_rule(pybind11::object rule);

}  // namespace onward
