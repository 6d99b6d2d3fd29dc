#include "pack/json_text.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/mapped_file.h"

namespace onward {
namespace {

// Watches a parse: depth, number of values, names that come twice.
class Watch {
 public:
  Watch(const std::string& where, const JsonLimits& limits) : where_(where), limits_(limits) {}

  bool operator()(int /*depth*/, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      names_.emplace_back();
      if (names_.size() > static_cast<size_t>(limits_.depth)) {
        throw PackError(where_ + ": is nested more than " + std::to_string(limits_.depth) +
                        " deep");
      }
    } else if (event == Event::object_end || event == Event::array_end) {
      names_.pop_back();
    } else if (event == Event::key) {
      const std::string& name = parsed.get_ref<const std::string&>();
      if (!names_.back().insert(name).second) {
        throw PackError(where_ + ": has '" + printable(name) + "' twice");
      }
    }
    if (++values_ > limits_.values) {
      throw PackError(where_ + ": has more than " + std::to_string(limits_.values) + " values");
    }
    return true;
  }

 private:
  const std::string& where_;
  const JsonLimits& limits_;
  std::vector<std::set<std::string>> names_;
  size_t values_ = 0;
};

}  // namespace

Json parse_object(std::string_view text, const std::string& where, const JsonLimits& limits) {
  if (text.empty() || text.front() != '{') {
    throw PackError(where + ": does not begin with '{', expected a JSON object");
  }
  try {
    return Json::parse(text.begin(), text.end(), Watch(where, limits));
  } catch (const Json::exception& error) {
    throw PackError(where + ": is no JSON: " + printable(error.what(), 200));
  }
}

void refuse(const std::string& where, const Json& found, const char* expected) {
  std::string shown = found.type_name();
  if (found.is_number() || found.is_boolean()) shown = found.dump();
  if (found.is_string()) shown = "'" + printable(found.get_ref<const std::string&>(), 60) + "'";
  throw PackError(where + ": is " + shown + ", expected " + expected);
}

int64_t as_integer(const Json& value, const std::string& where) {
  const bool fits =
      value.is_number_unsigned()
          ? value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())
          : value.is_number_integer();
  if (!fits) refuse(where, value, "an integer of 64 bits");
  return value.get<int64_t>();
}

double as_number(const Json& value, const std::string& where) {
  if (!value.is_number() || !std::isfinite(value.get<double>())) {
    refuse(where, value, "a finite number");
  }
  return value.get<double>();
}

bool as_flag(const Json& value, const std::string& where) {
  if (!value.is_boolean()) refuse(where, value, "true or false");
  return value.get<bool>();
}

std::string as_text(const Json& value, const std::string& where) {
  if (!value.is_string()) refuse(where, value, "a string");
  return value.get<std::string>();
}

ObjectReader::ObjectReader(const Json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object.is_object()) refuse(where_, object, "an object");
}

const Json& ObjectReader::member(const char* name) {
  const auto found = object_.find(name);
  if (found == object_.end()) throw PackError(where_ + ": has no '" + std::string(name) + "'");
  read_.insert(name);
  return *found;
}

std::string ObjectReader::text(const char* name) {
  return as_text(member(name), where_ + "." + name);
}

const Json& ObjectReader::array(const char* name) {
  const Json& value = member(name);
  if (!value.is_array()) refuse(where_ + "." + name, value, "an array");
  return value;
}

const Json& ObjectReader::object(const char* name) {
  const Json& value = member(name);
  if (!value.is_object()) refuse(where_ + "." + name, value, "an object");
  return value;
}

void ObjectReader::finish(const std::string& advice) const {
  for (const auto& [name, value] : object_.items()) {
    if (!read_.contains(name)) {
      throw PackError(where_ + ": '" + printable(name) + "' is not known to this version" +
                      advice);
    }
  }
}

}  // namespace onward
