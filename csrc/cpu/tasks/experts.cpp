#include "cpu/tasks/experts.h"

#include <algorithm>
#include <cstring>

#include "cpu/tasks/norm.h"
#include "cpu/tasks/routing.h"

namespace onward::cpu {
namespace {

void prepare(InputRows& input, const Matrix& weight, const float* x, int64_t rows,
             const Kernels& kernels, ThreadPool& pool) {
  input.reserve(weight, {x, Norm{}}, rows);
  if (input.needed()) pool.run(rows, [&](int64_t row) { input.prepare(kernels, row); });
}

}  // namespace

void ExpertTasks::run(const ExpertsArgs& args, int64_t rows, const Kernels& kernels,
                      ThreadPool& pool) {
  const int64_t parts = args.gate.gated ? 2 : 1;
  const int64_t hidden = args.up->inputs, inner = args.down->inputs;
  const int64_t slots = rows * args.routing.chosen;
  float* normed = reserve_floats(normed_, rows * hidden);
  const auto normalise = [&](const LinearInput& input) {
    pool.run(rows, [&](int64_t row) {
      const float* x = input.x + row * hidden;
      float* y = normed + row * hidden;
      if (input.norm.empty()) {
        std::copy_n(x, hidden, y);
      } else {
        normalise_row(kernels, input.norm, x, hidden, y);
      }
    });
  };
  const bool routes_other = args.router_input.x != nullptr;
  normalise(routes_other ? args.router_input : args.input);
  route(args, rows, kernels, pool);
  group(args.routing, rows);
  if (routes_other) normalise(args.input);

  float* gathered = reserve_floats(gathered_, slots * hidden);
  pool.run(slots, [&](int64_t slot) {
    const Slot& from = slots_[static_cast<size_t>(slot)];
    float* y = gathered + slot * hidden;
    std::copy_n(normed + from.row * hidden, hidden, y);
    if (args.weighted_input) kernels.soft_cap(y, hidden, from.weight, 0.0f);
  });
  prepare(input_rows_, *args.up, gathered, slots, kernels, pool);
  LinearOutput up;
  up.weight = args.up;
  up.columns = inner;
  up.bias = args.up_bias.data;
  up.gate = &args.gate;
  up.parameters = args.activation_parameters;
  up.y = reserve_floats(inner_, slots * inner);
  multiply(input_rows_, up, parts * inner, kernels, pool);

  prepare(inner_rows_, *args.down, up.y, slots, kernels, pool);
  LinearOutput down;
  down.weight = args.down;
  down.columns = hidden;
  down.bias = args.down_bias.data;
  down.y = reserve_floats(outer_, slots * hidden);
  multiply(inner_rows_, down, hidden, kernels, pool);
  combine(args, rows, kernels, pool);
}

void ExpertTasks::route(const ExpertsArgs& args, int64_t rows, const Kernels& kernels,
                        ThreadPool& pool) {
  const Matrix& router = *args.router;
  prepare(router_rows_, router, normed_.data<float>(), rows, kernels, pool);
  LinearOutput output;
  output.weight = &router;
  output.columns = router.outputs;
  output.bias = args.router_bias.data;
  output.y = reserve_floats(logits_, rows * router.outputs);
  const LinearTasks tasks(output, router_rows_, 0, rows, kernels, pool.threads());
  pool.run(tasks.count(), [&](int64_t task) { tasks.run(task); });
  const int64_t each = args.routing.chosen;
  chosen_.resize(static_cast<size_t>(rows * each));
  pool.run(rows, [&](int64_t row) {
    ChosenExpert* chosen = chosen_.data() + row * each;
    float* logits = output.y + row * router.outputs;
    if (args.router_scale != 1.0f)
      kernels.soft_cap(logits, router.outputs, args.router_scale, 0.0f);
    choose_experts(args.routing, logits, args.correction.data, chosen);
    if (args.scales.empty()) return;
    for (int64_t i = 0; i < each; ++i) chosen[i].weight *= args.scales.data[chosen[i].expert];
  });
}

// Sorts the chosen experts of all rows by expert.
void ExpertTasks::group(const Routing& routing, int64_t rows) {
  std::vector<int64_t> next(static_cast<size_t>(routing.experts));
  for (const ChosenExpert& each : chosen_) ++next[static_cast<size_t>(each.expert)];
  runs_.clear();
  int64_t first = 0;
  for (int64_t expert = 0; expert < routing.experts; ++expert) {
    int64_t& count = next[static_cast<size_t>(expert)];
    if (count > 0) runs_.push_back({expert, first, count});
    first += std::exchange(count, first);
  }
  slots_.resize(chosen_.size());
  slot_of_.resize(chosen_.size());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = row * routing.chosen; i < (row + 1) * routing.chosen; ++i) {
      const ChosenExpert& each = chosen_[static_cast<size_t>(i)];
      const int64_t slot = next[static_cast<size_t>(each.expert)]++;
      slots_[static_cast<size_t>(slot)] = {row, each.weight};
      slot_of_[static_cast<size_t>(i)] = slot;
    }
  }
}

void ExpertTasks::multiply(const InputRows& input, const LinearOutput& output, int64_t part_columns,
                           const Kernels& kernels, ThreadPool& pool) {
  std::vector<LinearTasks> products;
  products.reserve(runs_.size());
  for (const Run& run : runs_) {
    LinearOutput own = output;
    own.first = run.expert * part_columns;
    own.y = output.y + run.first * output.columns;
    products.emplace_back(own, input, run.first, run.count, kernels, pool.threads());
  }
  run_products(products, pool);
}

void ExpertTasks::combine(const ExpertsArgs& args, int64_t rows, const Kernels& kernels,
                          ThreadPool& pool) {
  const int64_t hidden = args.down->outputs / args.routing.experts;
  const int64_t each = args.routing.chosen;
  const float* outer = outer_.data<float>();
  pool.run(rows, [&](int64_t row) {
    float* y = args.y + row * hidden;
    std::fill(y, y + hidden, 0.0f);
    for (int64_t i = row * each; i < (row + 1) * each; ++i) {
      const int64_t slot = slot_of_[static_cast<size_t>(i)];
      const float weight = args.weighted_input ? 1.0f : slots_[static_cast<size_t>(slot)].weight;
      kernels.add_scaled(outer + slot * hidden, weight, hidden, y);
    }
  });
}

}  // namespace onward::cpu
