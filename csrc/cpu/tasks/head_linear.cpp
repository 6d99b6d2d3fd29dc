#include "cpu/tasks/head_linear.h"

#include <algorithm>
#include <vector>

namespace onward::cpu {

void HeadLinearTasks::run(const HeadLinearArgs& args, int64_t rows, const Kernels& kernels,
                          ThreadPool& pool) {
  const int64_t inputs = args.weight->inputs, columns = activation_stride(args.outputs);
  const int64_t before = args.inputs + args.copied, after = args.outputs + args.copied;
  float* gathered = reserve_floats(gathered_, args.heads * rows * inputs);
  float* products = reserve_floats(products_, args.heads * rows * columns);
  pool.run(args.heads * rows, [&](int64_t at) {
    const float* x = args.x + at % rows * args.x_stride + at / rows * before;
    float* y = gathered + at * inputs;
    std::copy_n(x, args.inputs, y);
    std::fill(y + args.inputs, y + inputs, 0.0f);
  });
  input_rows_.reserve(*args.weight, {gathered, Norm{}}, args.heads * rows);
  if (input_rows_.needed()) {
    pool.run(args.heads * rows, [&](int64_t at) { input_rows_.prepare(kernels, at); });
  }
  std::vector<LinearTasks> tasks;
  tasks.reserve(static_cast<size_t>(args.heads));
  for (int64_t head = 0; head < args.heads; ++head) {
    LinearOutput output;
    output.weight = args.weight;
    output.first = head * columns;
    output.columns = columns;
    output.y = products + head * rows * columns;
    tasks.emplace_back(output, input_rows_, head * rows, rows, kernels, pool.threads());
  }
  run_products(tasks, pool);
  pool.run(rows, [&](int64_t row) {
    const float* x = args.x + row * args.x_stride + args.inputs;
    float* y = args.y + row * args.y_stride;
    for (int64_t head = 0; head < args.heads; ++head) {
      float* own = y + head * after;
      std::copy_n(products + (head * rows + row) * columns, args.outputs, own);
      std::copy_n(x + head * before, args.copied, own + args.outputs);
    }
    std::fill(y + args.heads * after, y + args.y_stride, 0.0f);
  });
}

}  // namespace onward::cpu
