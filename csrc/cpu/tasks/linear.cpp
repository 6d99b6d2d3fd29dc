#include "cpu/tasks/linear.h"

#include <algorithm>

#include "cpu/tasks/norm.h"
#include "cpu/tasks/panels.h"

namespace onward::cpu {
namespace {

// Up to this number of rows a product is bound by reading its weights.
constexpr int64_t kFewRows = 16;

// A task of few rows reads at least this much. Claiming a smaller task costs too much.
constexpr int64_t kTaskBytes = int64_t{96} << 10;
constexpr int64_t kMostTasksPerThread = 8;

// Rows of one task where there are many rows: a multiple of the kernels' 6-row register tile, small
// enough that the narrow matrices of a small model still make several tasks per thread.
constexpr int64_t kLinearRows = 96;

void grow(AlignedBuffer& buffer, int64_t bytes) {
  if (buffer.bytes() < static_cast<size_t>(bytes)) {
    buffer = AlignedBuffer(static_cast<size_t>(bytes));
  }
}

// The dtype of the input rows for weights of a dtype.
DType input_dtype(DType weights) {
  if (dtype_block_values(weights) > 1) return DType::q8_0;
  return weights == DType::bf16 ? DType::bf16 : DType::f32;
}

using KernelFunction = void (*)(const LinearArgs&);

KernelFunction kernel_of(const Kernels& kernels, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return kernels.linear_f32;
    case DType::f16:
      return kernels.linear_f16;
    case DType::bf16:
      return kernels.linear_bf16;
    case DType::q8_0:
      return kernels.linear_q8_0;
    case DType::q4_0:
      return kernels.linear_q4_0;
    case DType::q4_1:
      return kernels.linear_q4_1;
    default:
      return nullptr;  // is_matrix_dtype is false
  }
}

}  // namespace

int64_t InputRows::row_bytes() const {
  return dtype_ == DType::q8_0 ? groups_ * kGroupValues : inputs_ * dtype_block_bytes(dtype_);
}

void InputRows::reserve(const Matrix& weight, const LinearInput& input, int64_t rows) {
  input_ = input;
  dtype_ = input_dtype(weight.dtype);
  inputs_ = weight.inputs;
  groups_ = round_up(inputs_, kGroupValues) / kGroupValues;
  if (!needed()) return;
  grow(values_, rows * row_bytes());
  if (dtype_ != DType::f32 && !input.norm.empty()) grow(normed_, rows * inputs_ * 4);
  if (dtype_ != DType::q8_0) return;
  grow(scales_, rows * groups_ * 4);
  grow(sums_, rows * groups_ * 4);
}

void InputRows::prepare(const Kernels& kernels, int64_t row) const {
  char* out = values_.data<char>() + row * row_bytes();
  const float* values = input_.x + row * inputs_;
  if (!input_.norm.empty()) {
    float* made = dtype_ == DType::f32 ? reinterpret_cast<float*>(out)
                                       : normed_.data<float>() + row * inputs_;
    normalise_row(kernels, input_.norm, values, inputs_, made);
    values = made;
  }
  if (dtype_ == DType::bf16) {
    kernels.round_bf16(values, inputs_, reinterpret_cast<uint16_t*>(out));
  } else if (dtype_ == DType::q8_0) {
    kernels.quantize(values, inputs_, reinterpret_cast<int8_t*>(out),
                     scales_.data<float>() + row * groups_, sums_.data<int32_t>() + row * groups_);
  }
}

void InputRows::describe(int64_t row, LinearArgs& args) const {
  args.k = inputs_;
  args.x_stride = dtype_ == DType::q8_0 ? groups_ * kGroupValues : inputs_;
  args.x = input_.x + row * inputs_;
  if (needed()) args.x = values_.data<char>() + row * row_bytes();
  const bool quantized = dtype_ == DType::q8_0;
  args.x_scales = quantized ? scales_.data<float>() + row * groups_ : nullptr;
  args.x_sums = quantized ? sums_.data<int32_t>() + row * groups_ : nullptr;
}

LinearTasks::LinearTasks(const LinearOutput& output, const InputRows& input, int64_t first_row,
                         int64_t rows, const Kernels& kernels, int threads)
    : output_(output),
      input_(input),
      first_row_(first_row),
      rows_(rows),
      kernels_(kernels),
      kernel_(kernel_of(kernels, output.weight->dtype)) {
  if (rows == 0) return;
  if (rows <= kFewRows) {
    const bool gated = output.gate != nullptr && output.gate->gated;
    const int64_t bytes = output.columns * (gated ? 2 : 1) * output.weight->output_bytes();
    const int64_t each =
        std::clamp<int64_t>(bytes / (kTaskBytes * threads), 1, kMostTasksPerThread);
    count_ = std::min(output.columns / kLane, threads * each);
  } else {
    row_chunks_ = (rows + kLinearRows - 1) / kLinearRows;
    count_ = (output.columns + kPanelColumns - 1) / kPanelColumns * row_chunks_;
  }
}

void LinearTasks::run(int64_t task) const {
  if (row_chunks_ > 0) {
    // Chunks of one panel follow each other: the panel is still in the cache for the next chunk.
    const int64_t panel = task / row_chunks_ * kPanelColumns;
    const int64_t next = (task + 1) / row_chunks_ * kPanelColumns;
    const int64_t row = task % row_chunks_ * kLinearRows;
    run_columns({row, std::min(kLinearRows, rows_ - row)}, panel,
                std::min(panel + kPanelColumns, output_.columns), next);
    return;
  }
  const int64_t vectors = output_.columns / kLane;
  const int64_t end = vectors * (task + 1) / count_ * kLane;
  for (int64_t begin = vectors * task / count_ * kLane; begin < end;) {
    const int64_t panel_end = std::min(end, round_up(begin + 1, kPanelColumns));
    run_columns({0, rows_}, begin, panel_end, panel_end);
    begin = panel_end;
  }
}

// Columns [begin, end) of y, at most a panel's width. Columns from `next` on probably follow.
void LinearTasks::run_columns(const Rows& rows, int64_t begin, int64_t end, int64_t next) const {
  const int64_t first = output_.first, columns = output_.columns;
  float* y = output_.y + rows.first * columns + begin;
  if (output_.gate == nullptr) {
    return multiply(rows, first + begin, first + end, first + next, y, columns);
  }
  // (rows, gate | up) of these columns, still in the cache when they are combined.
  alignas(64) thread_local float halves[kLinearRows * 2 * kPanelColumns];
  constexpr int64_t kStride = 2 * kPanelColumns;
  const bool gated = output_.gate->gated;
  const int64_t up = first + columns;
  multiply(rows, first + begin, first + end, gated ? up + begin : first + next, halves, kStride);
  if (gated) multiply(rows, up + begin, up + end, first + next, halves + kPanelColumns, kStride);
  for (int64_t row = 0; row < rows.count; ++row) {
    ActivateArgs args;
    args.gate = *output_.gate;
    args.parameters = output_.parameters;
    args.x = halves + row * kStride;
    args.up = gated ? args.x + kPanelColumns : nullptr;
    args.n = end - begin;
    args.y = y + row * columns;
    kernels_.activate(args);
  }
}

// Outputs [begin, end) of the product; y: of output `begin`.
void LinearTasks::multiply(const Rows& rows, int64_t begin, int64_t end, int64_t next, float* y,
                           int64_t y_stride) const {
  const Matrix& weight = *output_.weight;
  LinearArgs args;
  input_.describe(first_row_ + rows.first, args);
  args.rows = rows.count;
  args.y_stride = y_stride;
  args.add = output_.add;
  while (begin < end) {
    const int64_t panel = panel_of(begin);
    const int64_t panel_end = std::min(end, panel + kPanelColumns);
    const int64_t next_panel = panel_end < end ? panel_end : panel_of(next);
    args.panel = panel_data(weight, panel);
    args.width = panel_width(weight, panel);
    args.first = begin - panel;
    args.columns = panel_end - begin;
    args.next = next_panel == panel || next_panel >= weight.outputs
                    ? nullptr
                    : panel_data(weight, next_panel);
    args.bias = output_.bias == nullptr ? nullptr : output_.bias + begin;
    args.y = y;
    kernel_(args);
    y += panel_end - begin;
    begin = panel_end;
  }
}

float* reserve_floats(AlignedBuffer& buffer, int64_t floats) {
  grow(buffer, floats * static_cast<int64_t>(sizeof(float)));
  return buffer.data<float>();
}

void run_products(const std::vector<LinearTasks>& products, ThreadPool& pool) {
  std::vector<int64_t> ends;  // of the tasks of each product, counted over all products
  int64_t tasks = 0;
  for (const LinearTasks& product : products) ends.push_back(tasks += product.count());
  pool.run(tasks, [&](int64_t task) {
    const size_t product =
        static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), task) - ends.begin());
    products[product].run(task - (product == 0 ? 0 : ends[product - 1]));
  });
}

}  // namespace onward::cpu
