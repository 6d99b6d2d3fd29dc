// Adds to the submodule `kernels`: the rotation and the coding of keys and values, on plain numpy
// arrays. For tests; knows nothing of models or of the cache's blocks as a whole.
#include <pybind11/numpy.h>

#include <algorithm>
#include <string>

#include "bindings/bindings.h"
#include "cpu/kernels.h"
#include "onward/error.h"

namespace py = pybind11;

namespace {

using namespace onward::cpu;
using onward::InvalidArgument;

using Floats = py::array_t<float, py::array::c_style>;

void expect_rotatable(int64_t n) {
  if (n % 32 == 0 && n >= 32 && n <= 512) return;
  throw InvalidArgument("kernels: a vector of " + std::to_string(n) +
                        " coordinates, expected a multiple of 32 up to 512");
}

Floats copy_of(const Floats& x) {
  Floats y(std::vector<py::ssize_t>(x.shape(), x.shape() + x.ndim()));
  std::copy_n(x.data(), x.size(), y.mutable_data());
  return y;
}

Floats hadamard(const std::string& isa, const Floats& x, bool inverse) {
  const Kernels& kernels = kernels_of(isa);
  expect_shape("x", x, {x.size()});
  expect_rotatable(x.size());
  Floats y = copy_of(x);
  (inverse ? kernels.inverse_hadamard : kernels.hadamard)(y.mutable_data(), y.size());
  return y;
}

Floats hadamard_lanes(const std::string& isa, const Floats& x) {
  const Kernels& kernels = kernels_of(isa);
  expect_shape("x", x, {x.size() / kLane, kLane});
  expect_rotatable(x.shape(0));
  Floats y = copy_of(x);
  kernels.hadamard_lanes(y.mutable_data(), y.shape(0));
  return y;
}

}  // namespace

void bind_codes(py::module_& k) {
  k.def("hadamard", &hadamard, py::arg("isa"), py::arg("x"), py::arg("inverse") = false,
        "The rotation of one vector, or the way back.");
  k.def("hadamard_lanes", &hadamard_lanes, py::arg("isa"), py::arg("x"),
        "The rotation of sixteen vectors, the columns of x (n, 16).");
}
