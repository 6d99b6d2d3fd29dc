// JSON that nobody has vouched for: parsed under limits, and read member by member with every type
// checked. Whatever is wrong becomes a PackError that says where. Knows nothing of what the members
// mean. The one header that names the JSON library; it stays inside this room.
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
  int depth = 4;             // of arrays and objects in each other
  size_t values = 1u << 20;  // of all kinds, names included
};

// PackError for what is no JSON object, has a name twice in one object or goes over the limits.
Json parse_object(std::string_view text, const std::string& where, const JsonLimits& limits = {});

// Reads members of an object once each; what is not read must not be there.
class ObjectReader {
 public:
  // PackError where `object` is none.
  ObjectReader(const Json& object, std::string where);

  bool has(const char* name) const { return object_.contains(name); }
  int64_t integer(const char* name);
  double number(const char* name);  // finite
  bool flag(const char* name);
  std::string text(const char* name);
  const Json& array(const char* name);
  const Json& object(const char* name);
  const Json& member(const char* name);
  // PackError for a member that was not asked for.
  void finish() const;

  const std::string& where() const { return where_; }

 private:
  const Json& object_;
  std::string where_;
  std::set<std::string> read_;
};

// PackError `where: is ..., expected ...`.
[[noreturn]] void refuse(const std::string& where, const Json& found, const char* expected);
// An integer that fits, of any value.
int64_t as_integer(const Json& value, const std::string& where);

}  // namespace onward
