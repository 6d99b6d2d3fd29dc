// How a struct of a spec lists its fields, so that checks, packs and the Python binding derive from
// one table. A struct has members with their defaults and a static fields() that names each member:
//
//   struct Example {
//     int64_t size = 0;
//     bool flag = false;
//     static constexpr auto fields() {
//       return std::tuple(required("size", &Example::size, {1, 100}),
//                         optional("flag", &Example::flag));
//     }
//   };
#pragma once

#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace onward {

// Of a number, or of each number of a list. Exact for integers up to 2^53.
struct SpecRange {
  double low = 0;
  double high = 0;
};

template <typename Struct, typename Value>
struct SpecField {
  using Type = Value;
  const char* name;
  Value Struct::* member;
  bool required;  // else the member keeps its default where the field is absent
  SpecRange range;
  bool by_layer = false;  // a list with one value for each layer; empty: the default in all layers
  const char* choices = nullptr;  // the allowed texts, separated by spaces; null: any
};

template <typename Struct, typename Value>
constexpr SpecField<Struct, Value> required(const char* name, Value Struct::* member,
                                            SpecRange range = {}) {
  return {name, member, true, range};
}
template <typename Struct, typename Value>
constexpr SpecField<Struct, Value> optional(const char* name, Value Struct::* member,
                                            SpecRange range = {}) {
  return {name, member, false, range};
}
template <typename Struct>
constexpr SpecField<Struct, std::string> choice(const char* name, std::string Struct::* member,
                                                const char* choices) {
  return {name, member, false, {}, false, choices};
}
template <typename Struct, typename Value>
constexpr SpecField<Struct, std::vector<Value>> by_layer(const char* name,
                                                         std::vector<Value> Struct::* member,
                                                         SpecRange range = {}) {
  return {name, member, false, range, true};
}

// A struct that is described by fields itself.
template <typename T>
concept SpecStruct = requires { T::fields(); };

template <typename T>
struct IsSpecList : std::false_type {};
template <typename T>
struct IsSpecList<std::vector<T>> : std::true_type {};

// Calls visit(field) for each field of a struct.
template <SpecStruct Struct, typename Visit>
void for_each_field(const Visit& visit) {
  std::apply([&](const auto&... field) { (visit(field), ...); }, Struct::fields());
}

// Whether fields() names as many members as the struct has. Brace initialisation takes one value
// for each member of an aggregate and no more.
struct AnySpecValue {
  template <typename T>
  operator T() const;
};
template <typename Struct, size_t... kIndex>
constexpr bool takes_values(std::index_sequence<kIndex...>) {
  return requires { Struct{(static_cast<void>(kIndex), AnySpecValue())...}; };
}
template <SpecStruct Struct>
constexpr bool names_all_members() {
  constexpr size_t kCount = std::tuple_size_v<decltype(Struct::fields())>;
  return takes_values<Struct>(std::make_index_sequence<kCount>()) &&
         !takes_values<Struct>(std::make_index_sequence<kCount + 1>());
}

}  // namespace onward
