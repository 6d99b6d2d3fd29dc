// JSON from untrusted files: parsed under limits, and read member by member with
// every type checked. A fault becomes a PackError that says where it is. Only this room includes
// the JSON library.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"

namespace onward {

using Json = nlohmann::json;

struct JsonLimits {
  int depth = 4;             // of nested arrays and objects
  size_t values = 1u << 20;  // names included
};

// PackError for text that is not a JSON object, has a name twice or exceeds the limits.
Json parse_object(std::string_view text, const std::string& where, const JsonLimits& limits = {});

// Reads the members of an object. `finish` refuses members that were not read.
class ObjectReader {
 public:
  // PackError for JSON that is not an object.
  ObjectReader(const Json& object, std::string where);

  bool has(const char* name) const { return object_.contains(name); }
  std::string text(const char* name);
  const Json& array(const char* name);
  const Json& object(const char* name);
  const Json& member(const char* name);
  // PackError for a member that was not read; its message ends with `advice`.
  void finish(const std::string& advice = "") const;

 private:
  const Json& object_;
  std::string where_;
  std::set<std::string> read_;
};

// PackError `where: is ..., expected ...`.
[[noreturn]] void refuse(const std::string& where, const Json& found, const char* expected);
// A value of one type. PackError for another type, an integer beyond 64 bits, a number that is not
// finite.
int64_t as_integer(const Json& value, const std::string& where);
double as_number(const Json& value, const std::string& where);
bool as_flag(const Json& value, const std::string& where);
std::string as_text(const Json& value, const std::string& where);

}  // namespace onward
