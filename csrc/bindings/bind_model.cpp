// ModelBuilder, Model and packs for Python.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "bindings/bindings.h"
#include "cpu/tasks/panels.h"
#include "device/device.h"
#include "model/layer_features.h"
#include "model/model.h"
#include "pack/pack.h"

namespace py = pybind11;

namespace {

using onward::DecoderSpec;
using onward::Model;
using onward::ModelBuilder;
using onward::TensorSource;

using RowOrder = py::array_t<int32_t, py::array::c_style>;
using Part = std::tuple<py::buffer, std::string, std::vector<int64_t>, std::optional<RowOrder>>;

// The number of rows in the buffer of a source, or of elements if it is a vector.
int64_t rows_held(const TensorSource& source, bool vector) {
  const int64_t block = onward::dtype_block_values(source.dtype);
  const auto block_bytes = static_cast<size_t>(onward::dtype_block_bytes(source.dtype));
  const auto values = static_cast<int64_t>(source.bytes / block_bytes) * block;
  return vector ? values : values / std::max<int64_t>(source.columns, 1);
}

// A tensor of one dimension is one row. The rows of a row_order may be any rows of the buffer.
TensorSource make_source(const py::buffer_info& info, const Part& part) {
  const auto& [buffer, dtype, shape, row_order] = part;
  TensorSource source;
  source.data = info.ptr;
  source.bytes = static_cast<size_t>(info.size) * static_cast<size_t>(info.itemsize);
  source.dtype = onward::parse_dtype(dtype);
  if (shape.empty() || shape.size() > 2) {
    throw onward::WeightError("weights: a part has " + std::to_string(shape.size()) +
                              " dimensions, expected 1 or 2");
  }
  source.rows = shape.size() == 2 ? shape[0] : 1;
  source.columns = shape.back();
  if (row_order) {
    const int64_t expected = shape[0];
    const int64_t held = rows_held(source, shape.size() == 1);
    const int32_t* order = row_order->data();
    const bool inside =
        row_order->size() == expected &&
        std::all_of(order, order + expected, [=](int32_t row) { return row >= 0 && row < held; });
    if (!inside) {
      throw onward::WeightError("weights: row_order must name rows 0 to " +
                                std::to_string(held - 1) + ", one for each of " +
                                std::to_string(expected) + " rows");
    }
    source.row_order = order;
  }
  return source;
}

void require_contiguous(const py::buffer_info& info, const std::string& name) {
  if (PyBuffer_IsContiguous(info.view(), 'C') == 0) {
    throw onward::InvalidArgument("weights: the buffer of a part of '" + name +
                                  "' is strided, expected contiguous memory");
  }
}

void add_weight(ModelBuilder& builder, const std::string& name, const std::vector<Part>& parts,
                const std::string& dtype, bool mapped) {
  std::vector<py::buffer_info> infos;  // keep the buffers alive while the GIL is released
  std::vector<TensorSource> sources;
  for (const Part& part : parts) {
    infos.push_back(std::get<0>(part).request());
    require_contiguous(infos.back(), name);
    sources.push_back(make_source(infos.back(), part));
    sources.back().mapped = mapped;
  }
  const onward::DType packed = onward::parse_dtype(dtype);
  py::gil_scoped_release release;
  builder.add(name, sources, packed);
}

// Read-only views that keep the model alive.
std::vector<std::tuple<std::string, std::string, py::memoryview>> packed_weights(
    const std::shared_ptr<Model>& model) {
  std::vector<std::tuple<std::string, std::string, py::memoryview>> weights;
  const py::object owner = py::cast(model);
  for (const onward::NamedWeight& weight : model->weights) {
    const bool vector = weight.matrix.empty();
    const onward::PackedBytes packed =
        vector ? model->store->packed(weight.vector) : model->store->packed(weight.matrix);
    const py::array_t<uint8_t> bytes(static_cast<py::ssize_t>(packed.bytes),
                                     static_cast<const uint8_t*>(packed.data), owner);
    bytes.attr("setflags")(py::arg("write") = false);
    weights.emplace_back(weight.name,
                         onward::dtype_name(vector ? onward::DType::f32 : weight.matrix.dtype),
                         py::memoryview(py::buffer(bytes)));
  }
  return weights;
}

// The model, and the metadata with the texts.
std::pair<std::shared_ptr<Model>, std::map<std::string, std::string>> open_pack(
    const std::filesystem::path& path, int threads, bool verify, bool copy,
    const std::optional<std::string>& cache_dtype, const std::string& device) {
  onward::PackOptions options{verify, copy, std::nullopt};
  if (cache_dtype) options.cache_dtype = onward::parse_dtype(*cache_dtype);
  onward::Pack pack;
  {
    py::gil_scoped_release release;
    pack = onward::open_pack(path.string(), onward::Device(device).make_weight_store(threads),
                             options);
  }
  return {std::const_pointer_cast<Model>(pack.model), std::move(pack.texts)};
}

}  // namespace

void bind_model(py::module_& m) {
  m.attr("packed_layout") = onward::cpu::kPackedLayout;
  py::class_<Model, std::shared_ptr<Model>>(m, "Model")
      .def_readonly("spec", &Model::spec)
      .def_property_readonly(
          "cache_dtype", [](const Model& model) { return onward::dtype_name(model.cache_dtype); })
      .def_property_readonly("weight_bytes",
                             [](const Model& model) { return model.store->bytes_used(); })
      .def_property_readonly("device", [](const Model& model) { return model.store->device(); })
      .def_property_readonly("packed_layout",
                             [](const Model& model) { return model.store->packed_layout(); })
      .def("packed", &packed_weights);

  py::class_<ModelBuilder>(m, "ModelBuilder")
      .def(py::init([](const DecoderSpec& spec, const std::string& cache_dtype, int threads,
                       const std::string& device) {
             return std::make_unique<ModelBuilder>(
                 spec, onward::parse_dtype(cache_dtype),
                 onward::Device(device).make_weight_store(threads));
           }),
           py::arg("spec"), py::arg("cache_dtype"), py::arg("threads"), py::arg("device") = "cpu")
      .def("add", &add_weight, py::arg("name"), py::arg("parts"), py::arg("dtype"),
           py::arg("mapped") = false)
      .def("finish",
           [](ModelBuilder& builder) { return std::const_pointer_cast<Model>(builder.finish()); });

  m.def(
      "layer_features",
      [](const DecoderSpec& spec) {
        std::vector<std::string> names;
        for (const onward::LayerFeature feature : onward::features_of(spec)) {
          names.emplace_back(onward::feature_name(feature));
        }
        return names;
      },
      py::arg("spec"));
  m.def("open_pack", &open_pack, py::arg("path"), py::arg("threads"), py::arg("verify") = false,
        py::arg("copy") = false, py::arg("cache_dtype") = py::none(), py::arg("device") = "cpu");
}
