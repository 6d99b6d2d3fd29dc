// DecoderSpec for Python: made from the fields of the dataclass, and the table of fields.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "bindings/bindings.h"
#include "model/decoder_spec.h"

namespace py = pybind11;

namespace {

using onward::DecoderSpec;
using onward::IsSpecList;
using onward::SpecStruct;

[[noreturn]] void refuse(const std::string& field, const std::string& problem) {
  throw onward::InvalidArgument("spec: " + field + " " + problem);
}

template <typename Value>
constexpr bool is_struct_list() {
  if constexpr (IsSpecList<Value>::value) {
    return SpecStruct<typename Value::value_type>;
  } else {
    return false;
  }
}

// A struct from a dict of its fields, nested structs from nested dicts.
template <SpecStruct Struct>
Struct from_fields(const py::dict& values, const std::string& prefix) {
  Struct result;
  size_t found = 0;
  onward::for_each_field<Struct>([&](const auto& field) {
    const std::string name = prefix + field.name;
    if (!values.contains(field.name)) {
      if (field.required) refuse(name, "is missing");
      return;
    }
    ++found;
    const py::object value = values[field.name];
    using Value = typename std::decay_t<decltype(field)>::Type;
    try {
      if constexpr (SpecStruct<Value>) {
        if (!py::isinstance<py::dict>(value)) throw py::cast_error();
        result.*field.member = from_fields<Value>(py::dict(value), name + ".");
      } else if constexpr (is_struct_list<Value>()) {
        for (const py::dict& each : value.cast<std::vector<py::dict>>()) {
          (result.*field.member)
              .push_back(from_fields<typename Value::value_type>(each, name + "."));
        }
      } else {
        result.*field.member = value.cast<Value>();
      }
    } catch (const py::cast_error&) {
      refuse(name, "is " + std::string(py::repr(value)) + ", expected another type");
    }
  });
  if (found == values.size()) return result;
  for (const auto& [key, value] : values) {
    const std::string name = py::str(key);
    bool known = false;
    onward::for_each_field<Struct>([&](const auto& field) { known |= name == field.name; });
    if (!known) refuse(prefix + name, "is not a field of the spec");
  }
  return result;
}

template <typename Value>
std::string type_name() {
  if constexpr (IsSpecList<Value>::value) {
    return "list[" + type_name<typename Value::value_type>() + "]";
  } else if constexpr (std::is_same_v<Value, std::string>) {
    return "str";
  } else if constexpr (std::is_same_v<Value, bool>) {
    return "bool";
  } else if constexpr (std::is_integral_v<Value>) {
    return "int";
  } else {
    static_assert(std::is_floating_point_v<Value>);
    return "float";
  }
}

// (name with its path, type, whether it is required, default) of each field.
using FieldRow = std::tuple<std::string, std::string, bool, py::object>;

template <SpecStruct Struct>
void append_rows(const std::string& prefix, std::vector<FieldRow>& rows) {
  const Struct defaults;
  onward::for_each_field<Struct>([&](const auto& field) {
    using Value = typename std::decay_t<decltype(field)>::Type;
    const std::string name = prefix + field.name;
    if constexpr (SpecStruct<Value>) {
      rows.emplace_back(name, "struct", field.required, py::none());
      append_rows<Value>(name + ".", rows);
    } else if constexpr (is_struct_list<Value>()) {
      rows.emplace_back(name, "list[struct]", field.required, py::list());
    } else {
      rows.emplace_back(name, type_name<Value>(), field.required,
                        field.required ? py::none() : py::cast(defaults.*field.member));
    }
  });
}

std::vector<FieldRow> spec_table() {
  std::vector<FieldRow> rows;
  append_rows<DecoderSpec>("", rows);
  return rows;
}

}  // namespace

void bind_spec(py::module_& m) {
  py::class_<DecoderSpec>(m, "DecoderSpec")
      .def(py::init([](const py::dict& fields) {
             const DecoderSpec spec = from_fields<DecoderSpec>(fields, "");
             spec.validate();
             return spec;
           }),
           py::arg("fields"))
      .def_readonly("vocab_size", &DecoderSpec::vocab_size)
      .def_readonly("max_context", &DecoderSpec::max_context);
  m.def("spec_table", &spec_table);
}
