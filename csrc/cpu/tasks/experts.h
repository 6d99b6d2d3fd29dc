// The experts of one layer on the CPU. The rows of a step are grouped by expert, so that the
// weights of an expert are read once for all of its rows, and those of the other experts not at
// all. A row's result does not depend on the rows that share its experts.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "base/buffer.h"
#include "base/thread_pool.h"
#include "cpu/kernels.h"
#include "cpu/tasks/linear.h"

namespace onward::cpu {

// Reuses its memory from call to call.
class ExpertTasks {
 public:
  // Throws std::bad_alloc.
  void run(const ExpertsArgs& args, int64_t rows, const Kernels& kernels, ThreadPool& pool);

 private:
  // A row of one expert. Slots lie in the order of experts, and of rows within an expert.
  struct Slot {
    int64_t row;
    float weight;
  };
  // The slots of one expert that has any.
  struct Run {
    int64_t expert;
    int64_t first;
    int64_t count;
  };

  void route(const ExpertsArgs& args, int64_t rows, const Kernels& kernels, ThreadPool& pool);
  void group(const Routing& routing, int64_t rows);
  // One product for each run: outputs [first, first + columns) of a part of `weight` for its slots.
  void multiply(const InputRows& input, const LinearOutput& output, int64_t part_columns,
                const Kernels& kernels, ThreadPool& pool);
  void combine(const ExpertsArgs& args, int64_t rows, const Kernels& kernels, ThreadPool& pool);

  AlignedBuffer normed_;    // (rows, hidden): the input after its norm
  AlignedBuffer logits_;    // (rows, experts)
  AlignedBuffer gathered_;  // (slots, hidden)
  AlignedBuffer inner_;     // (slots, intermediate)
  AlignedBuffer outer_;     // (slots, hidden)
  InputRows router_rows_, input_rows_, inner_rows_;
  std::vector<ChosenExpert> chosen_;  // (rows, chosen)
  std::vector<Slot> slots_;
  std::vector<int64_t> slot_of_;  // (rows, chosen)
  std::vector<Run> runs_;
};

}  // namespace onward::cpu
