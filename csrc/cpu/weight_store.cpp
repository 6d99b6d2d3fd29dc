#include "cpu/weight_store.h"

#include <algorithm>
#include <string>

#include "base/buffer.h"
#include "base/half.h"
#include "base/thread_pool.h"
#include "cpu/dequantize.h"
#include "cpu/kernels.h"
#include "onward/error.h"

namespace onward::cpu {
namespace {

int64_t row_bytes(const TensorSource& source) {
  return source.columns / dtype_block_values(source.dtype) * dtype_block_bytes(source.dtype);
}

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

// Where each output of a product comes from: a part and its row, or nothing (padding).
struct OutputSource {
  const TensorSource* part = nullptr;
  int64_t row = 0;
};

constexpr int64_t kTransposeColumns = 256;  // 64 rows x 256 floats fit the first-level cache

// Writes outputs [first, first + width) of the product as one panel.
//   f32: [k][width];  bf16: [k / 2][width][2]
void pack_panel(const std::vector<OutputSource>& outputs, int64_t first, int64_t width,
                const Matrix& matrix, int64_t columns) {
  alignas(64) float rows[kPanelColumns][kTransposeColumns];
  uint8_t* panel =
      static_cast<uint8_t*>(matrix.data) + first * matrix.inputs * dtype_block_bytes(matrix.dtype);
  for (int64_t k0 = 0; k0 < matrix.inputs; k0 += kTransposeColumns) {
    const int64_t count = std::min(kTransposeColumns, matrix.inputs - k0);
    const int64_t stored = std::clamp<int64_t>(columns - k0, 0, count);
    for (int64_t c = 0; c < width; ++c) {
      const OutputSource& source = outputs[first + c];
      std::fill(rows[c], rows[c] + count, 0.0f);
      if (source.part == nullptr || stored == 0) continue;
      read_row(source.part->dtype, stored_row(*source.part, source.row), k0, stored, rows[c]);
    }
    if (matrix.dtype == DType::f32) {
      float* out = reinterpret_cast<float*>(panel) + k0 * width;
      for (int64_t k = 0; k < count; ++k) {
        for (int64_t c = 0; c < width; ++c) out[k * width + c] = rows[c][k];
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

class CpuWeightStore final : public WeightStore {
 public:
  explicit CpuWeightStore(int threads) : pool_(threads) {}

  Matrix pack_matrix(const std::vector<TensorSource>& parts, DType dtype) override {
    Matrix matrix;
    matrix.dtype = dtype;
    const int64_t columns = parts.at(0).columns;
    std::vector<OutputSource> outputs;
    for (const TensorSource& part : parts) {
      check(part);
      if (part.columns != columns) {
        throw WeightError("weights: parts of one product have " + std::to_string(columns) +
                          " and " + std::to_string(part.columns) + " columns, expected the same");
      }
      matrix.offsets.push_back(static_cast<int64_t>(outputs.size()));
      for (int64_t row = 0; row < part.rows; ++row) outputs.push_back({&part, row});
      outputs.resize(round_up(static_cast<int64_t>(outputs.size()), kLane));
    }
    matrix.outputs = static_cast<int64_t>(outputs.size());
    matrix.inputs = round_up(columns, kLane);
    matrix.data = arena_.allocate(static_cast<size_t>(matrix.bytes()));
    pool_.run((matrix.outputs + kPanelColumns - 1) / kPanelColumns, [&](int64_t panel) {
      const int64_t first = panel * kPanelColumns;
      pack_panel(outputs, first, std::min(kPanelColumns, matrix.outputs - first), matrix, columns);
    });
    return matrix;
  }

  Vector pack_vector(const std::vector<TensorSource>& parts) override {
    Vector vector;
    for (const TensorSource& part : parts) {
      check(part);
      vector.size += round_up(part.columns, kLane);
    }
    vector.data = static_cast<float*>(arena_.allocate(static_cast<size_t>(vector.size) * 4));
    float* out = vector.data;
    for (const TensorSource& part : parts) {
      if (part.row_order) {  // a vector's "rows" are its elements
        std::vector<float> stored(static_cast<size_t>(part.columns));
        read_row(part.dtype, part.data, 0, part.columns, stored.data());
        for (int64_t i = 0; i < part.columns; ++i) out[i] = stored[part.row_order[i]];
      } else {
        read_row(part.dtype, part.data, 0, part.columns, out);
      }
      out += round_up(part.columns, kLane);
    }
    return vector;
  }

  size_t bytes_used() const override { return arena_.bytes_used(); }

 private:
  ThreadPool pool_;
  Arena arena_;
};

}  // namespace

std::unique_ptr<WeightStore> make_weight_store(int threads) {
  return std::make_unique<CpuWeightStore>(threads);
}

}  // namespace onward::cpu
