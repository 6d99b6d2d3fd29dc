// The submodule `kernels`: instruction sets, measured rates of the processor, and the rounding of
// packed weights.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/packed_matrix.h"
#include "cpu/probe.h"
#include "cpu/select.h"
#include "formats/range_check.h"

namespace py = pybind11;

namespace {

using namespace onward::cpu;

using Floats = py::array_t<float, py::array::c_style>;
using Bytes = py::array_t<uint8_t, py::array::c_style>;

std::pair<double, double> weight_range(const std::string& dtype) {
  const onward::WeightRange range = onward::weight_range(onward::parse_dtype(dtype));
  return {range.low, range.high};
}

// (rows, columns) as float32.
Floats repacked(const Bytes& weights, const std::string& stored, const std::string& dtype) {
  const PackedMatrix packed = pack_matrix(weights, stored, dtype);
  Floats result({packed.rows, packed.columns});
  std::vector<float> values(static_cast<size_t>(packed.matrix.inputs));
  for (int64_t row = 0; row < packed.rows; ++row) {
    read_output(packed.matrix, row, values.data());
    std::copy_n(values.begin(), packed.columns, result.mutable_data() + row * packed.columns);
  }
  return result;
}

}  // namespace

void bind_kernels(py::module_& m) {
  py::module_ k = m.def_submodule("kernels", "Instruction sets, probes, and packed weights.");
  k.def("available", &available_names, "Instruction sets this machine can run, slowest first.");
  k.def(
      "selected", [] { return std::string(select_kernels().name); },
      "The instruction set in use: the best one, or the one that ONWARD_CPU_ISA names.");
  k.def(
      "probe",
      [](const std::string& isa, const std::string& kind, double seconds, int threads) {
        const py::gil_scoped_release release;
        return probe(kernels_named("kernels", isa), kind, seconds, threads);
      },
      py::arg("isa"), py::arg("kind"), py::arg("seconds"), py::arg("threads"),
      "GB/s for kind 'read', GFLOP/s for 'f32', 'bf16' and 'int8', of all threads together.");
  k.def("weight_range", &weight_range, py::arg("dtype"),
        "The smallest and the largest weight that can be packed in a dtype.");
  k.def("repacked", &repacked, py::arg("weights"), py::arg("stored"), py::arg("dtype"),
        "The values of weights after packing.");
}
