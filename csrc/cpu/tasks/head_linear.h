// Products with a matrix of its own for each head (HeadLinearArgs) on the CPU.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "base/buffer.h"
#include "base/thread_pool.h"
#include "cpu/kernels.h"
#include "cpu/tasks/linear.h"

namespace onward::cpu {

// Reuses its memory from call to call.
class HeadLinearTasks {
 public:
  // Throws std::bad_alloc.
  void run(const HeadLinearArgs& args, int64_t rows, const Kernels& kernels, ThreadPool& pool);

 private:
  InputRows input_rows_;
  AlignedBuffer gathered_;  // (heads, rows, padded inputs)
  AlignedBuffer products_;  // (heads, rows, padded outputs)
};

}  // namespace onward::cpu
