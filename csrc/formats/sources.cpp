#include "formats/sources.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "formats/dequantize.h"

namespace onward {
namespace {

void check(const TensorSource& source) {
  const int64_t block = dtype_block_values(source.dtype);
  if (source.rows <= 0 || source.columns <= 0 || source.columns % block != 0) {
    throw WeightError("weights: a source has shape (" + std::to_string(source.rows) + ", " +
                      std::to_string(source.columns) + "), expected positive sizes and rows of " +
                      dtype_name(source.dtype) + " blocks of " + std::to_string(block));
  }
  const uint64_t needed = static_cast<uint64_t>(row_bytes(source));
  if (source.bytes / needed < static_cast<uint64_t>(source.rows)) {
    throw WeightError("weights: a source holds " + std::to_string(source.bytes) +
                      " bytes, expected " + std::to_string(source.rows) + " rows of " +
                      std::to_string(needed));
  }
}

const uint8_t* stored_row(const TensorSource& source, int64_t row) {
  const int64_t stored = source.row_order ? source.row_order[row] : row;
  return static_cast<const uint8_t*>(source.data) + stored * row_bytes(source);
}

}  // namespace

int64_t row_bytes(const TensorSource& source) {
  return source.columns / dtype_block_values(source.dtype) * dtype_block_bytes(source.dtype);
}

std::vector<PartShape> shapes_of(const std::vector<TensorSource>& parts) {
  std::vector<PartShape> shapes;
  for (const TensorSource& part : parts) shapes.push_back({part.rows, part.columns});
  return shapes;
}

std::vector<OutputSource> outputs_of(const std::vector<TensorSource>& parts) {
  const int64_t columns = parts.at(0).columns;
  std::vector<OutputSource> outputs;
  for (const TensorSource& part : parts) {
    check(part);
    if (part.columns != columns) {
      throw WeightError("weights: parts of one product have " + std::to_string(columns) + " and " +
                        std::to_string(part.columns) + " columns, expected the same");
    }
    for (int64_t row = 0; row < part.rows; ++row) {
      outputs.push_back({part.dtype, stored_row(part, row), columns});
    }
    outputs.resize(round_up(static_cast<int64_t>(outputs.size()), kActivationLane));
  }
  return outputs;
}

Matrix planned_matrix(const std::vector<PartShape>& parts, DType dtype) {
  Matrix matrix;
  matrix.dtype = dtype;
  for (const PartShape& part : parts) {
    matrix.offsets.push_back(matrix.outputs);
    matrix.outputs = round_up(matrix.outputs + part.rows, kActivationLane);
  }
  matrix.inputs = round_up(parts.at(0).columns, kActivationLane);
  return matrix;
}

int64_t vector_size(const std::vector<PartShape>& parts) {
  int64_t size = 0;
  for (const PartShape& part : parts) size += round_up(part.columns, kActivationLane);
  return size;
}

void read_vector(const std::vector<TensorSource>& parts, float* out) {
  for (const TensorSource& part : parts) {
    check(part);
    if (part.row_order) {  // a vector's "rows" are its elements
      const auto blocks = static_cast<int64_t>(part.bytes) / dtype_block_bytes(part.dtype);
      std::vector<float> stored(static_cast<size_t>(blocks * dtype_block_values(part.dtype)));
      read_row(part.dtype, part.data, 0, static_cast<int64_t>(stored.size()), stored.data());
      for (int64_t i = 0; i < part.columns; ++i) out[i] = stored[part.row_order[i]];
    } else {
      read_row(part.dtype, part.data, 0, part.columns, out);
    }
    out += round_up(part.columns, kActivationLane);
  }
}

void read_values(const OutputSource& source, int64_t begin, int64_t count, float* out) {
  const int64_t stored = std::clamp<int64_t>(source.columns - begin, 0, count);
  if (source.row != nullptr && stored > 0) {
    read_row(source.dtype, source.row, begin, stored, out);
    out += stored;
    count -= stored;
  }
  std::fill(out, out + count, 0.0f);
}

WeightBlock packed_group(DType packed, const OutputSource& source, int64_t group) {
  const int64_t first = group * kGroupValues;
  if (source.row != nullptr && holds_same_codes(source.dtype, packed)) {
    return stored_block(source.dtype, source.row, first);
  }
  float values[kGroupValues];
  read_values(source, first, kGroupValues, values);
  return rounded_block(packed, values);
}

}  // namespace onward
