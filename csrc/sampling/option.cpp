#include "sampling/option.h"

#include <cmath>
#include <sstream>

#include "base/error.h"

namespace onward {
namespace {

template <typename Found>
[[noreturn]] void refuse(const char* name, const Found& found, const std::string& expected) {
  std::ostringstream message;
  message << name << ": found " << found << ", expected " << expected;
  throw InvalidArgument(message.str());
}

template <typename Number>
bool holds(const Range& range, Number value) {
  const auto number = static_cast<double>(value);
  if (range.ends_only) return number == range.low || number == range.high;
  return std::isfinite(number) && number >= range.low && number <= range.high &&
         !(range.above_low && number == range.low);
}

std::string expected(const Range& range, const char* number) {
  std::ostringstream text;
  if (range.ends_only) {
    text << range.low << " or " << range.high;
  } else if (std::isinf(range.low)) {
    text << number;
  } else if (std::isinf(range.high)) {
    text << number << (range.above_low ? " above " : " of at least ") << range.low;
  } else if (range.above_low) {
    text << "a number above " << range.low << ", at most " << range.high;
  } else {
    text << "a number from " << range.low << " to " << range.high;
  }
  return text.str();
}

void check_id(const char* name, int64_t id, int64_t vocab_size) {
  if (id >= 0 && id < vocab_size) return;
  refuse(name, "token id " + std::to_string(id) + ", outside the vocabulary",
         "0 to " + std::to_string(vocab_size - 1));
}

}  // namespace

void check_value(const char* name, const Range& range, double value, int64_t) {
  if (!holds(range, value)) refuse(name, value, expected(range, "a finite number"));
}

void check_value(const char* name, const Range& range, int64_t value, int64_t) {
  if (!holds(range, value)) refuse(name, value, expected(range, "an integer"));
}

void check_value(const char* name, const Range&, const LogitBiases& biases, int64_t vocab_size) {
  for (const auto& [id, bias] : biases) {
    check_id(name, id, vocab_size);
    // NaN fails this comparison too.
    if (!(bias < std::numeric_limits<double>::infinity())) {
      refuse(name, bias, "a finite number, or -inf to ban the token");
    }
  }
}

void check_value(const char* name, const Range&, const TokenIds& ids, int64_t vocab_size) {
  for (const int32_t id : ids) check_id(name, id, vocab_size);
}

void check_value(const char* name, const Range& range, const std::optional<TokenIds>& ids,
                 int64_t vocab_size) {
  if (!ids) return;
  if (ids->empty()) refuse(name, "an empty list", "at least one token id");
  check_value(name, range, *ids, vocab_size);
}

void check_value(const char* name, const Range& range, const TokenIdLists& lists,
                 int64_t vocab_size) {
  for (const TokenIds& ids : lists) {
    if (ids.empty()) refuse(name, "an empty list", "token ids");
    check_value(name, range, ids, vocab_size);
  }
}

}  // namespace onward
