// A matrix packed in host memory as a weight store packs it, but without the check that the values
// fit the dtype. Conversion of weights in Python and the tests of the products use it.
#pragma once

#include <pybind11/numpy.h>

#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/error.h"
#include "cpu/tasks/panels.h"

struct PackedMatrix {
  onward::AlignedBuffer memory;  // the memory of `matrix`
  onward::Matrix matrix;
  int64_t rows;
  int64_t columns;
};

// weights: (rows, bytes of a row), stored as dtype `stored` and packed as dtype `packed`.
// InvalidArgument for other dimensions, or a dtype that a matrix in memory cannot have.
inline PackedMatrix pack_matrix(
    const pybind11::array_t<uint8_t, pybind11::array::c_style>& weights, const std::string& stored,
    const std::string& packed) {
  const onward::DType from = onward::parse_dtype(stored), to = onward::parse_dtype(packed);
  if (weights.ndim() != 2 || !onward::is_matrix_dtype(to)) {
    throw onward::InvalidArgument("kernels: weights have " + std::to_string(weights.ndim()) +
                                  " dimensions and become " + packed +
                                  ", expected 2 and f32, f16, bf16, q8_0, q4_0 or q4_1");
  }
  onward::TensorSource source;
  source.data = weights.data();
  source.bytes = static_cast<size_t>(weights.nbytes());
  source.dtype = from;
  source.rows = weights.shape(0);
  source.columns =
      weights.shape(1) / onward::dtype_block_bytes(from) * onward::dtype_block_values(from);
  const std::vector<onward::OutputSource> outputs = onward::outputs_of({source});
  PackedMatrix result = {
      {}, onward::planned_matrix(onward::shapes_of({source}), to), source.rows, source.columns};
  onward::Matrix& matrix = result.matrix;
  result.memory = onward::AlignedBuffer(static_cast<size_t>(matrix.bytes()));
  matrix.data = result.memory.data();
  for (int64_t first = 0; first < matrix.outputs; first += onward::cpu::kPanelColumns) {
    onward::cpu::pack_panel(matrix, first, onward::cpu::panel_width(matrix, first),
                            outputs.data() + first);
  }
  return result;
}
