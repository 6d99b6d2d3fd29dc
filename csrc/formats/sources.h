// The sources of a packed weight: checked rows of stored tensors, read as floats or as quantised
// groups, in the order and with the padding that all devices use.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "formats/weight_blocks.h"

namespace onward {

// Where one output of a product comes from: a row of a stored tensor, or nothing (padding).
struct OutputSource {
  DType dtype = DType::f32;
  const void* row = nullptr;
  int64_t columns = 0;
};

// The outputs of a matrix of these parts, padding included: (outputs). WeightError when a source is
// shorter than its shape says, or the parts have different columns.
std::vector<OutputSource> outputs_of(const std::vector<TensorSource>& parts);

// The matrix of these parts, without its memory.
Matrix planned_matrix(const std::vector<PartShape>& parts, DType dtype);
std::vector<PartShape> shapes_of(const std::vector<TensorSource>& parts);

// A vector's size, padding included. read_vector writes its values and zeros for the padding.
int64_t vector_size(const std::vector<PartShape>& parts);
void read_vector(const std::vector<TensorSource>& parts, float* out);

// Bytes of one stored row.
int64_t row_bytes(const TensorSource& source);

// Values [begin, begin + count) of an output as floats, zeros beyond its end.
void read_values(const OutputSource& source, int64_t begin, int64_t count, float* out);

// Values [32 group, 32 group + 32) in a quantised dtype: copied if the stored format has the same
// codes, else rounded.
WeightBlock packed_group(DType packed, const OutputSource& source, int64_t group);

}  // namespace onward
