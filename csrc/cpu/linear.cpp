#include "cpu/linear.h"

#include <algorithm>
#include <vector>

namespace onward::cpu {
namespace {

// Up to here a product is bound by reading its weights.
constexpr int64_t kFewRows = 16;

// A task of few rows reads at least so much: less is not worth claiming.
constexpr int64_t kTaskBytes = int64_t{96} << 10;
constexpr int64_t kMostTasksPerThread = 8;

// Rows of one task of many: a multiple of the kernels' 6-row register tile, small enough that the
// narrow matrices of a small model still make several tasks per thread.
constexpr int64_t kLinearRows = 96;

void grow(AlignedBuffer& buffer, int64_t bytes) {
  if (buffer.bytes() < static_cast<size_t>(bytes)) {
    buffer = AlignedBuffer(static_cast<size_t>(bytes));
  }
}

// What the rows of x are for weights of a dtype.
DType input_dtype(DType weights) {
  if (dtype_block_values(weights) > 1) return DType::q8_0;
  return weights == DType::bf16 ? DType::bf16 : DType::f32;
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
  if (dtype_ != DType::q8_0) return;
  grow(scales_, rows * groups_ * 4);
  grow(sums_, rows * groups_ * 4);
}

void InputRows::prepare(const Kernels& kernels, int64_t row) const {
  thread_local std::vector<float> scratch;  // a row on its way to fewer bits
  char* out = values_.data<char>() + row * row_bytes();
  float* made = reinterpret_cast<float*>(out);
  if (dtype_ != DType::f32 && input_.kind != LinearInput::Kind::plain) {
    if (scratch.size() < static_cast<size_t>(inputs_)) scratch.resize(inputs_);
    made = scratch.data();
  }
  const float* values = made;
  switch (input_.kind) {
    case LinearInput::Kind::plain:
      values = input_.x + row * inputs_;
      break;
    case LinearInput::Kind::normed:
      kernels.rms_norm(input_.x + row * inputs_, input_.norm.data, input_.norm_eps, input_.size,
                       made);
      std::fill(made + input_.size, made + inputs_, 0.0f);
      break;
    case LinearInput::Kind::gated: {
      const float* gate = input_.x + row * 2 * inputs_;
      kernels.silu_mul(gate, gate + inputs_, inputs_, made);
      break;
    }
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
  if (needed()) {
    args.x = values_.data<char>() + row * row_bytes();
    args.x_scales = scales_.data<float>() + row * groups_;
    args.x_sums = sums_.data<int32_t>() + row * groups_;
  } else {
    args.x = input_.x + row * inputs_;
    args.x_scales = nullptr;
    args.x_sums = nullptr;
  }
}

LinearTasks::LinearTasks(const Matrix& weight, int64_t rows, int threads)
    : weight_(weight), rows_(rows), threads_(threads) {
  if (rows <= kFewRows) {
    const int64_t each =
        std::clamp<int64_t>(weight.bytes() / (kTaskBytes * threads), 1, kMostTasksPerThread);
    count_ = std::min(weight.outputs / kLane, threads * each);
  } else {
    row_chunks_ = (rows + kLinearRows - 1) / kLinearRows;
    count_ = (weight.outputs + kPanelColumns - 1) / kPanelColumns * row_chunks_;
  }
}

void LinearTasks::run(int64_t task, Kernel kernel, const InputRows& input, const float* bias,
                      bool add, float* y) const {
  LinearArgs args;
  args.y_stride = weight_.outputs;
  args.add = add;
  if (row_chunks_ > 0) {
    // Chunks of one panel are neighbours: the panel is still in the cache for the next one.
    const int64_t panel = task / row_chunks_ * kPanelColumns;
    const int64_t next = (task + threads_) / row_chunks_ * kPanelColumns;
    const int64_t row = task % row_chunks_ * kLinearRows;
    args.rows = std::min(kLinearRows, rows_ - row);
    input.describe(row, args);
    run_panel(panel, panel, panel + kPanelColumns, next, kernel, args, bias,
              y + row * weight_.outputs);
    return;
  }
  const int64_t vectors = weight_.outputs / kLane;
  const int64_t end = vectors * (task + 1) / count_ * kLane;
  args.rows = rows_;
  input.describe(0, args);
  for (int64_t begin = vectors * task / count_ * kLane; begin < end;) {
    const int64_t panel = begin / kPanelColumns * kPanelColumns;
    const int64_t panel_end = std::min(end, panel + kPanelColumns);
    run_panel(panel, begin, panel_end, panel_end, kernel, args, bias, y);
    begin = panel_end;
  }
}

// Columns [begin, end) of the panel that starts at output `panel`; `next` is likely to follow.
void LinearTasks::run_panel(int64_t panel, int64_t begin, int64_t end, int64_t next, Kernel kernel,
                            LinearArgs args, const float* bias, float* y) const {
  const char* data = static_cast<const char*>(weight_.data);
  args.panel = data + panel * weight_.output_bytes();
  args.width = std::min(kPanelColumns, weight_.outputs - panel);
  args.first = begin - panel;
  args.columns = std::min(end, weight_.outputs) - begin;
  args.next =
      next == panel || next >= weight_.outputs ? nullptr : data + next * weight_.output_bytes();
  args.bias = bias == nullptr ? nullptr : bias + panel;
  args.y = y + panel;
  kernel(args);
}

LinearTasks::Kernel linear_kernel(const Kernels& kernels, DType dtype) {
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
    default:
      return kernels.linear_q4_1;
  }
}

}  // namespace onward::cpu
