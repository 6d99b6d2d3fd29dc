// One row of a table of options: name, field, default, legal values and meaning. Construction,
// validation, the Python bindings and the documents all work from these rows.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "sampling/rules.h"

namespace onward {

enum class ChainOrder : uint8_t;
enum class EarlyStopping : uint8_t;

using LogitBiases = std::map<int32_t, double>;
using TokenIds = std::vector<int32_t>;
using TokenIdLists = std::vector<TokenIds>;

// The legal values of a number. NaN and the infinities are never legal.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above_low = false;  // `low` itself is not legal
  bool ends_only = false;  // `low` and `high` are the only legal values
};

constexpr Range at_least(double low) { return {.low = low}; }
constexpr Range above(double low) { return {.low = low, .above_low = true}; }
constexpr Range between(double low, double high) { return {.low = low, .high = high}; }
constexpr Range above_up_to(double low, double high) {
  return {.low = low, .high = high, .above_low = true};
}
constexpr Range either(double low, double high) {
  return {.low = low, .high = high, .ends_only = true};
}

template <typename Owner>
struct Option {
  using Field = std::variant<double Owner::*, int64_t Owner::*, LogitBiases Owner::*,
                             TokenIds Owner::*, std::optional<TokenIds> Owner::*,
                             TokenIdLists Owner::*, std::shared_ptr<ScoreRule> Owner::*,
                             ChainOrder Owner::*, EarlyStopping Owner::*>;
  const char* name = nullptr;
  Field field;
  const char* help = "";     // one line, for signatures and flags
  double initial = 0;        // the default of a number; all other fields begin empty
  Range range = {};          // of a number
  const char* details = "";  // what the documents say besides
};

// InvalidArgument that names the option, what was found and what was expected.
void check_value(const char* name, const Range& range, double value, int64_t vocab_size);
void check_value(const char* name, const Range& range, int64_t value, int64_t vocab_size);
void check_value(const char* name, const Range&, const LogitBiases& biases, int64_t vocab_size);
void check_value(const char* name, const Range&, const TokenIds& ids, int64_t vocab_size);
void check_value(const char* name, const Range&, const std::optional<TokenIds>& ids,
                 int64_t vocab_size);
void check_value(const char* name, const Range&, const TokenIdLists& lists, int64_t vocab_size);

template <typename Owner>
void set_default(Owner& owner, const Option<Owner>& option) {
  const auto set = [&]<typename T>(T Owner::* field) {
    if constexpr (std::is_arithmetic_v<T>) owner.*field = static_cast<T>(option.initial);
  };
  std::visit(set, option.field);
}

template <typename Owner>
void check_option(const Owner& owner, const Option<Owner>& option, int64_t vocab_size) {
  const auto check = [&]<typename T>(T Owner::* field) {
    if constexpr (requires { check_value(option.name, option.range, owner.*field, vocab_size); }) {
      check_value(option.name, option.range, owner.*field, vocab_size);
    }
  };
  std::visit(check, option.field);
}

template <typename Owner>
bool has_default(const Owner& owner, const Option<Owner>& option) {
  const auto compare = [&]<typename T>(T Owner::* field) {
    if constexpr (std::is_arithmetic_v<T>) return owner.*field == static_cast<T>(option.initial);
    return owner.*field == T{};
  };
  return std::visit(compare, option.field);
}

}  // namespace onward
