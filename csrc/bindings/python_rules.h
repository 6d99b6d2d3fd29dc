// The caller's own rules, written in Python: callables over numpy arrays.
#pragma once

#include <pybind11/numpy.h>

#include <memory>

#include "sampling/rules.h"

namespace onward {

// rule(token_ids, scores) changes scores in place; what it returns is ignored. None: no rule.
std::shared_ptr<ScoreRule> score_rule(pybind11::object rule);
// rule(token_ids) says whether the output ends here.
std::shared_ptr<EndRule> end_rule(pybind11::object rule);

}  // namespace onward
