// Cuts each verb into independent tasks for the thread pool, which call the kernels. Work that is
// too small to be worth waking a thread runs on the caller. This choice changes no bit: tasks cut
// sums only as cpu/attend_args.h defines.
#include "cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "base/buffer.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "cpu/kernels.h"
#include "cpu/tasks/attend.h"
#include "cpu/tasks/encode.h"
#include "cpu/tasks/experts.h"
#include "cpu/tasks/head_linear.h"
#include "cpu/tasks/linear.h"
#include "cpu/tasks/norm.h"
#include "cpu/tasks/panels.h"
#include "cpu/tasks/rotate.h"

namespace onward::cpu {
namespace {

// The kernel headers define these sizes on their own.
static_assert(kLane == kActivationLane && kBlockTokens == CacheLayout::kBlockTokens &&
              kGroupValues == onward::kGroupValues);

// An elementwise verb with fewer values costs less than handing it to another thread.
constexpr int64_t kSmallWork = 16384;

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(int threads) : kernels_(select_kernels()), pool_(threads) {}

  std::string name() const override { return std::string("cpu:") + kernels_.name; }
  int threads() const override { return pool_.threads(); }

  void* allocate(size_t bytes) override {
    AlignedBuffer buffer(bytes);
    void* memory = buffer.data();
    allocated_.emplace(memory, std::move(buffer));
    return memory;
  }
  void release(void* memory) noexcept override { allocated_.erase(memory); }
  void* reserve(size_t bytes) override { return reserve_pages(bytes); }
  void unreserve(void* memory, size_t bytes) noexcept override { unreserve_pages(memory, bytes); }
  void vacate(void* memory, size_t bytes) noexcept override { drop_whole_pages(memory, bytes); }
  void upload(void* device, const void* host, size_t bytes) override {
    std::memcpy(device, host, bytes);
  }
  void download(void* host, const void* device, size_t bytes) override {
    std::memcpy(host, device, bytes);
  }
  void copy(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void run_on_host(int64_t tasks, const std::function<void(int64_t)>& work) override {
    pool_.run(tasks, work);
  }

  void begin_step(const CacheLayout& layout, const std::vector<SequenceSlice>& slices,
                  const std::vector<BlockEncoding>& encodings) override {
    layout_ = &layout;
    slices_ = &slices;
    encodings_ = &encodings;
  }
  void run_step(const StepShape&, const std::function<void()>& verbs) override { verbs(); }

  void embed(const Matrix& table, const int32_t* ids, int64_t rows, float scale, bool add,
             float* x) override;
  void gather_rows(const float* x, const int64_t* index, int64_t rows, int64_t width,
                   float* y) override;
  void linear(const Matrix& weight, const Vector& bias, const LinearInput& input, int64_t rows,
              bool add, float* y) override;
  void activated_linear(const Matrix& weight, const Vector& bias, const LinearInput& input,
                        int64_t rows, const Gate& gate, const float* parameters, float* y) override;
  void experts(const ExpertsArgs& args, int64_t rows) override {
    expert_tasks_.run(args, rows, kernels_, pool_);
  }
  void head_linear(const HeadLinearArgs& args, int64_t rows) override {
    head_tasks_.run(args, rows, kernels_, pool_);
  }
  void gate_rows(const float* gates, int64_t gate_stride, int64_t groups, int64_t rows,
                 int64_t width, int64_t stride, float* x) override;
  void multiply_rows(const float* by, int64_t by_stride, int64_t rows, int64_t width,
                     float* x) override;
  void normalise(const LinearInput& input, int64_t rows, float* y) override;
  void add_rows(const LinearInput& input, int64_t rows, float scale, float* x) override;
  void cap_rows(float* x, int64_t rows, int64_t width, float scale, float cap) override;
  void rotate_and_append(const RotateArgs& args) override;
  void encode(int64_t layer) override;
  void attend(const AttendLayerArgs& args) override;

 private:
  // body(first_row, last_row) over disjoint ranges that cover [0, rows).
  template <typename Body>
  void over_rows(int64_t rows, int64_t row_values, const Body& body) {
    if (rows * row_values <= kSmallWork) return body(0, rows);
    const int64_t rows_each = std::max<int64_t>(1, kSmallWork / row_values);
    pool_.run((rows + rows_each - 1) / rows_each, [&](int64_t task) {
      body(task * rows_each, std::min(rows, (task + 1) * rows_each));
    });
  }

  void multiply(const LinearOutput& output, const LinearInput& input, int64_t rows);

  const Kernels& kernels_;
  ThreadPool pool_;
  InputRows input_rows_;
  ExpertTasks expert_tasks_;
  HeadLinearTasks head_tasks_;
  AttendTasks attend_tasks_;
  std::unordered_map<void*, AlignedBuffer> allocated_;
  // Of the step.
  const CacheLayout* layout_ = nullptr;
  const std::vector<SequenceSlice>* slices_ = nullptr;
  const std::vector<BlockEncoding>* encodings_ = nullptr;
};

void CpuBackend::embed(const Matrix& table, const int32_t* ids, int64_t rows, float scale, bool add,
                       float* x) {
  const int64_t width = table.inputs;
  over_rows(rows, width, [&](int64_t first, int64_t last) {
    std::vector<float> token(static_cast<size_t>(add ? width : 0));
    for (int64_t row = first; row < last; ++row) {
      float* const y = x + row * width;
      float* const read = add ? token.data() : y;
      read_output(table, ids[row], read);
      if (add) {
        kernels_.add_scaled(read, scale, width, y);
      } else if (scale != 1.0f) {
        kernels_.soft_cap(y, width, scale, 0.0f);
      }
    }
  });
}

void CpuBackend::gather_rows(const float* x, const int64_t* index, int64_t rows, int64_t width,
                             float* y) {
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(y + row * width, x + index[row] * width, static_cast<size_t>(width) * 4);
  }
}

void CpuBackend::linear(const Matrix& weight, const Vector& bias, const LinearInput& input,
                        int64_t rows, bool add, float* y) {
  multiply({&weight, 0, weight.outputs, bias.data, add, y}, input, rows);
}

void CpuBackend::activated_linear(const Matrix& weight, const Vector& bias,
                                  const LinearInput& input, int64_t rows, const Gate& gate,
                                  const float* parameters, float* y) {
  const int64_t columns = weight.outputs / (gate.gated ? 2 : 1);
  multiply({&weight, 0, columns, bias.data, false, y, &gate, parameters}, input, rows);
}

void CpuBackend::normalise(const LinearInput& input, int64_t rows, float* y) {
  const int64_t stride = activation_stride(input.norm.size);
  over_rows(rows, stride, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      normalise_row(kernels_, input.norm, input.x + row * stride, stride, y + row * stride);
    }
  });
}

void CpuBackend::add_rows(const LinearInput& input, int64_t rows, float scale, float* x) {
  const int64_t stride = activation_stride(input.norm.size);
  over_rows(rows, stride, [&](int64_t first, int64_t last) {
    std::vector<float> normed(static_cast<size_t>(input.norm.empty() ? 0 : stride));
    for (int64_t row = first; row < last; ++row) {
      const float* added = input.x + row * stride;
      if (!input.norm.empty()) {
        normalise_row(kernels_, input.norm, added, stride, normed.data());
        added = normed.data();
      }
      kernels_.add_scaled(added, scale, stride, x + row * stride);
    }
  });
}

void CpuBackend::cap_rows(float* x, int64_t rows, int64_t width, float scale, float cap) {
  over_rows(rows, width, [&](int64_t first, int64_t last) {
    kernels_.soft_cap(x + first * width, (last - first) * width, scale, cap);
  });
}

void CpuBackend::gate_rows(const float* gates, int64_t gate_stride, int64_t groups, int64_t rows,
                           int64_t width, int64_t stride, float* x) {
  const int64_t each = width / groups;
  if (each == 1) {
    ActivateArgs args = {};
    args.gate.activation = Activation::sigmoid;
    args.n = round_up(width, kLane);  // gates of the padding multiply zeros
    return over_rows(rows, width, [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        ActivateArgs own = args;
        own.x = gates + row * gate_stride;
        own.y = x + row * stride;
        own.up = own.y;
        kernels_.activate(own);
      }
    });
  }
  over_rows(rows, width, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      for (int64_t group = 0; group < groups; ++group) {
        const double gate = gates[row * gate_stride + group];
        const float factor = static_cast<float>(1.0 / (1.0 + std::exp(-gate)));
        float* values = x + row * stride + group * each;
        for (int64_t i = 0; i < each; ++i) values[i] *= factor;
      }
    }
  });
}

void CpuBackend::multiply_rows(const float* by, int64_t by_stride, int64_t rows, int64_t width,
                               float* x) {
  over_rows(rows, width, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const float* factors = by + row * by_stride;
      float* values = x + row * width;
      for (int64_t i = 0; i < width; ++i) values[i] *= factors[i];
    }
  });
}

void CpuBackend::multiply(const LinearOutput& output, const LinearInput& input, int64_t rows) {
  input_rows_.reserve(*output.weight, input, rows);
  if (input_rows_.needed()) {
    over_rows(rows, output.weight->inputs, [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) input_rows_.prepare(kernels_, row);
    });
  }
  const LinearTasks tasks(output, input_rows_, 0, rows, kernels_, threads());
  pool_.run(tasks.count(), [&](int64_t task) { tasks.run(task); });
}

void CpuBackend::rotate_and_append(const RotateArgs& args) {
  const std::vector<SequenceSlice>& slices = *slices_;
  if (slices.empty()) return;
  const int64_t rows = slices.back().first_row + slices.back().tokens;
  over_rows(rows, args.q_stride, [&](int64_t first, int64_t last) {
    // Slices cover the rows in order: the slice of row `first` is the last one that does not begin
    // after it.
    const auto later = [](int64_t row, const SequenceSlice& slice) {
      return row < slice.first_row;
    };
    auto slice = std::upper_bound(slices.begin(), slices.end(), first, later) - 1;
    for (int64_t row = first; row < last; ++row) {
      while (row >= slice->first_row + slice->tokens) ++slice;
      rotate_and_append_token(args, *layout_, *slice, row - slice->first_row, kernels_);
    }
  });
}

void CpuBackend::encode(int64_t layer) {
  const CacheLayout& layout = *layout_;
  const int64_t group = layout.group_of[static_cast<size_t>(layer)];
  std::vector<const BlockEncoding*> own;  // other groups have other layers
  for (const BlockEncoding& block : *encodings_) {
    if (block.group == group) own.push_back(&block);
  }
  const int64_t heads = layout.group(layer).num_kv_heads;
  pool_.run(static_cast<int64_t>(own.size()) * heads, [&](int64_t task) {
    encode_head(kernels_, layout, layer, task % heads, *own[static_cast<size_t>(task / heads)]);
  });
}

void CpuBackend::attend(const AttendLayerArgs& args) {
  const CacheLayout& layout = *layout_;
  const std::vector<SequenceSlice>& slices = *slices_;
  attend_tasks_.plan(kernels_, args, layout, slices, threads());
  const auto body = [&](int64_t task) { attend_tasks_.run(task); };
  int64_t visible_keys = 0;
  for (const SequenceSlice& slice : slices) {
    visible_keys += slice.tokens * (slice.first_position + slice.tokens);
  }
  if (visible_keys * args.num_heads * layout.group(args.layer).head_dim <= kSmallWork) {
    for (int64_t task = 0; task < attend_tasks_.count(); ++task) body(task);
  } else {
    pool_.run(attend_tasks_.count(), body);
  }
}

}  // namespace

std::unique_ptr<Backend> make_backend(int threads) {
  if (threads < 1) {
    throw InvalidArgument("threads: found " + std::to_string(threads) + ", expected at least 1");
  }
  return std::make_unique<CpuBackend>(threads);
}

}  // namespace onward::cpu
