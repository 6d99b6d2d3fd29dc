// A matrix product on the CPU in two steps: input rows are prepared in the form that the weights'
// dtype needs, and the product is cut into tasks.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "base/buffer.h"
#include "base/thread_pool.h"
#include "cpu/kernels.h"

namespace onward::cpu {

// The prepared input rows of the current product: floats, bf16 bits, or int8 with a scale and a sum
// for each group of 32. Its buffers grow to the largest product so far.
class InputRows {
 public:
  void reserve(const Matrix& weight, const LinearInput& input, int64_t rows);
  // Whether prepare has anything to do.
  bool needed() const { return dtype_ != DType::f32 || !input_.norm.empty(); }
  // Prepares one row; rows are independent of each other.
  void prepare(const Kernels& kernels, int64_t row) const;

  // Fills k and the members of x in LinearArgs, from `row` on.
  void describe(int64_t row, LinearArgs& args) const;

 private:
  int64_t row_bytes() const;

  LinearInput input_;
  DType dtype_ = DType::f32;  // of the rows: f32, bf16 or q8_0
  int64_t inputs_ = 0;
  int64_t groups_ = 0;
  AlignedBuffer values_;
  AlignedBuffer normed_;  // (rows, inputs) floats, before they are rounded
  AlignedBuffer scales_;  // (rows, groups)
  AlignedBuffer sums_;    // (rows, groups)
};

// The weights of a product, and its output: some or all outputs of a matrix.
struct LinearOutput {
  const Matrix* weight = nullptr;
  int64_t first = 0;            // the first output, a multiple of kLane
  int64_t columns = 0;          // of y, a multiple of kLane
  const float* bias = nullptr;  // of the outputs of the whole matrix, or null
  bool add = false;             // adds the product to y
  float* y = nullptr;           // (rows, columns)
  // With a gate, y becomes its result. If it is gated, the outputs are 2 * columns: gate, then up.
  const Gate* gate = nullptr;
  const float* parameters = nullptr;  // of its activation
};

// Cuts a product into tasks. With few rows each weight is used only a few times, so each task takes
// an equal run of columns that is contiguous in memory. With many rows a task is one panel times a
// chunk of rows. The cut does not change a bit.
class LinearTasks {
 public:
  // Rows [first_row, first_row + rows) of the input; y begins with the first of them.
  LinearTasks(const LinearOutput& output, const InputRows& input, int64_t first_row, int64_t rows,
              const Kernels& kernels, int threads);

  int64_t count() const { return count_; }
  void run(int64_t task) const;

 private:
  struct Rows {
    int64_t first;  // of the product, from 0
    int64_t count;
  };
  void run_columns(const Rows& rows, int64_t begin, int64_t end, int64_t next) const;
  void multiply(const Rows& rows, int64_t begin, int64_t end, int64_t next, float* y,
                int64_t y_stride) const;

  LinearOutput output_;
  const InputRows& input_;
  int64_t first_row_;
  int64_t rows_;
  const Kernels& kernels_;
  void (*kernel_)(const LinearArgs&);
  int64_t row_chunks_ = 0;  // 0 with few rows
  int64_t count_ = 0;
};

// Memory for at least this many floats. It is kept for the next call; its contents are not.
float* reserve_floats(AlignedBuffer& buffer, int64_t floats);

// Runs the tasks of several products as one set.
void run_products(const std::vector<LinearTasks>& products, ThreadPool& pool);

}  // namespace onward::cpu
