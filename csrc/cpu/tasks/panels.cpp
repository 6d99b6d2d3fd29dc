#include "cpu/tasks/panels.h"

#include <algorithm>
#include <cstring>

#include "base/half.h"

namespace onward::cpu {
namespace {

constexpr int64_t kTransposeColumns = 256;  // 64 rows x 256 floats fit the first-level cache

// f32, f16: [k][width];  bf16: [k / 2][width][2]
void pack_floats(const Matrix& matrix, int64_t width, const OutputSource* outputs, char* panel) {
  alignas(64) float rows[kPanelColumns][kTransposeColumns];
  for (int64_t k0 = 0; k0 < matrix.inputs; k0 += kTransposeColumns) {
    const int64_t count = std::min(kTransposeColumns, matrix.inputs - k0);
    for (int64_t c = 0; c < width; ++c) read_values(outputs[c], k0, count, rows[c]);
    if (matrix.dtype == DType::f32) {
      float* out = reinterpret_cast<float*>(panel) + k0 * width;
      for (int64_t k = 0; k < count; ++k) {
        for (int64_t c = 0; c < width; ++c) out[k * width + c] = rows[c][k];
      }
    } else if (matrix.dtype == DType::f16) {
      uint16_t* out = reinterpret_cast<uint16_t*>(panel) + k0 * width;
      for (int64_t k = 0; k < count; ++k) {
        for (int64_t c = 0; c < width; ++c) out[k * width + c] = float_to_f16(rows[c][k]);
      }
    } else {
      uint16_t* out = reinterpret_cast<uint16_t*>(panel) + k0 * width;
      for (int64_t k = 0; k < count; ++k) {
        for (int64_t c = 0; c < width; ++c) {
          out[(k / 2) * width * 2 + c * 2 + (k & 1)] = float_to_bf16(rows[c][k]);
        }
      }
    }
  }
}

// Where a group of one column lies in its panel.
struct GroupPlace {
  uint8_t* quads;  // quad i at quads + i * quad_stride
  int64_t quad_stride;
  uint16_t* scale;
  uint16_t* minimum;  // q4_1 only
};

GroupPlace group_place(DType dtype, char* panel, int64_t width, int64_t group, int64_t column) {
  const int64_t quads = dtype == DType::q8_0 ? 8 : 4;
  char* begin = panel + group * width * dtype_block_bytes(dtype);
  uint16_t* scales = reinterpret_cast<uint16_t*>(begin + quads * width * 4);
  return {reinterpret_cast<uint8_t*>(begin) + column * 4, width * 4, scales + column,
          scales + width + column};
}

void write_block(DType dtype, const WeightBlock& block, const GroupPlace& place) {
  for (int64_t k = 0; k < (dtype == DType::q8_0 ? kGroupValues : kGroupValues / 2); ++k) {
    uint8_t& byte = place.quads[k / 4 * place.quad_stride + k % 4];
    byte = block.codes[k];
    if (dtype != DType::q8_0) byte |= block.codes[k + kGroupValues / 2] << 4;
  }
  *place.scale = block.scale;
  if (dtype == DType::q4_1) *place.minimum = block.minimum;
}

WeightBlock block_at(DType dtype, const GroupPlace& place) {
  WeightBlock block;
  for (int64_t k = 0; k < (dtype == DType::q8_0 ? kGroupValues : kGroupValues / 2); ++k) {
    const uint8_t byte = place.quads[k / 4 * place.quad_stride + k % 4];
    if (dtype == DType::q8_0) {
      block.codes[k] = byte;
    } else {
      block.codes[k] = byte & 15;
      block.codes[k + kGroupValues / 2] = byte >> 4;
    }
  }
  block.scale = *place.scale;
  if (dtype == DType::q4_1) block.minimum = *place.minimum;
  return block;
}

int64_t num_groups(const Matrix& matrix) {
  return round_up(matrix.inputs, kGroupValues) / kGroupValues;
}

void pack_groups(const Matrix& matrix, int64_t width, const OutputSource* outputs, char* panel) {
  for (int64_t group = 0; group < num_groups(matrix); ++group) {
    for (int64_t c = 0; c < width; ++c) {
      write_block(matrix.dtype, packed_group(matrix.dtype, outputs[c], group),
                  group_place(matrix.dtype, panel, width, group, c));
    }
  }
}

}  // namespace

int64_t panel_width(const Matrix& matrix, int64_t first) {
  return std::min(kPanelColumns, matrix.outputs - first);
}

char* panel_data(const Matrix& matrix, int64_t first) {
  return static_cast<char*>(matrix.data) + first * matrix.output_bytes();
}

void pack_panel(const Matrix& matrix, int64_t first, int64_t width, const OutputSource* outputs) {
  char* panel = panel_data(matrix, first);
  if (dtype_block_values(matrix.dtype) == 1) {
    pack_floats(matrix, width, outputs, panel);
  } else {
    pack_groups(matrix, width, outputs, panel);
  }
}

void read_output(const Matrix& matrix, int64_t output, float* out) {
  const int64_t first = panel_of(output);
  const int64_t width = panel_width(matrix, first), column = output - first;
  char* panel = panel_data(matrix, first);
  const uint16_t* halves = reinterpret_cast<const uint16_t*>(panel);
  switch (matrix.dtype) {
    case DType::f32: {
      const float* weights = reinterpret_cast<const float*>(panel);
      for (int64_t k = 0; k < matrix.inputs; ++k) out[k] = weights[k * width + column];
      return;
    }
    case DType::f16:
      for (int64_t k = 0; k < matrix.inputs; ++k) out[k] = f16_to_float(halves[k * width + column]);
      return;
    case DType::bf16:
      for (int64_t k = 0; k < matrix.inputs; ++k) {
        out[k] = bf16_to_float(halves[(k / 2) * width * 2 + column * 2 + (k & 1)]);
      }
      return;
    default:
      for (int64_t group = 0; group < num_groups(matrix); ++group) {
        float values[kGroupValues];
        const GroupPlace place = group_place(matrix.dtype, panel, width, group, column);
        read_block(matrix.dtype, block_at(matrix.dtype, place), values);
        const int64_t first_k = group * kGroupValues;
        std::copy_n(values, std::min(kGroupValues, matrix.inputs - first_k), out + first_k);
      }
  }
}

}  // namespace onward::cpu
