// A matrix product on the CPU in two halves: the input's rows in the form that the weights' dtype
// asks for, and the tasks that the product is cut into. Knows nothing of the pool that runs them.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "base/buffer.h"
#include "cpu/kernels.h"

namespace onward::cpu {

// The prepared rows of the product at hand: floats, bf16 bits, or int8 with a scale and a sum for
// each group of 32. Its buffers grow to the largest product seen.
class InputRows {
 public:
  void reserve(const Matrix& weight, const LinearInput& input, int64_t rows);
  // Whether prepare has anything to do.
  bool needed() const { return dtype_ != DType::f32 || !input_.norm.empty(); }
  // Prepares one row; rows are independent of each other.
  void prepare(const Kernels& kernels, int64_t row) const;

  // Fills what LinearArgs says of k and x, from `row` on.
  void describe(int64_t row, LinearArgs& args) const;

 private:
  int64_t row_bytes() const;

  LinearInput input_;
  DType dtype_ = DType::f32;  // of the rows: f32, bf16 or q8_0
  int64_t inputs_ = 0;
  int64_t groups_ = 0;
  AlignedBuffer values_;
  AlignedBuffer normed_;  // (rows, inputs) floats, on their way to fewer bits
  AlignedBuffer scales_;  // (rows, groups)
  AlignedBuffer sums_;    // (rows, groups)
};

// What a product is made of, and where it goes.
struct LinearOutput {
  const Matrix* weight = nullptr;
  const float* bias = nullptr;  // (outputs), or null
  bool add = false;             // to what y holds
  // Two parts of equal width, gate and up: y (rows, width) becomes silu(gate) * up.
  bool gated = false;
  float* y = nullptr;  // (rows, outputs), or (rows, width)
};

// Cuts a product into tasks. Few rows: each weight is used a few times only, so the tasks share the
// columns out evenly, in runs that are contiguous in memory. Many rows: panels times chunks of
// rows. No cut moves a bit.
class LinearTasks {
 public:
  LinearTasks(const LinearOutput& output, const InputRows& input, int64_t rows,
              const Kernels& kernels, int threads);

  int64_t count() const { return count_; }
  void run(int64_t task) const;

 private:
  struct Rows {
    int64_t first;
    int64_t count;
  };
  void run_columns(const Rows& rows, int64_t begin, int64_t end, int64_t next) const;
  void multiply(const Rows& rows, int64_t begin, int64_t end, int64_t next, float* y,
                int64_t y_stride) const;

  LinearOutput output_;
  const InputRows& input_;
  int64_t rows_;
  const Kernels& kernels_;
  void (*kernel_)(const LinearArgs&);
  int64_t columns_;         // of y
  int64_t row_chunks_ = 0;  // 0: few rows
  int64_t count_ = 0;
};

}  // namespace onward::cpu
