// A backend that forwards every verb to another one and reports each matrix product to an observer:
// for tools that need the inputs of a matrix, such as calibration.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace onward {

// A computed product. The pointers are the device's and valid during the call.
struct ObservedLinear {
  const Matrix& weight;
  const LinearInput& input;  // rows of weight.inputs
  const float* y;            // (rows, weight.outputs); with `add`, the sum; gated: half as wide
  int64_t rows;
  bool add;
};

class ObservingBackend final : public Backend {
 public:
  using Observer = std::function<void(const ObservedLinear&)>;

  // The observer may throw to abandon the step.
  ObservingBackend(std::unique_ptr<Backend> backend, Observer observer)
      : backend_(std::move(backend)), observer_(std::move(observer)) {}

  std::string name() const override { return backend_->name(); }
  int threads() const override { return backend_->threads(); }
  void* allocate(size_t bytes) override { return backend_->allocate(bytes); }
  void release(void* memory) noexcept override { backend_->release(memory); }
  void* reserve(size_t bytes) override { return backend_->reserve(bytes); }
  void unreserve(void* memory, size_t bytes) noexcept override {
    backend_->unreserve(memory, bytes);
  }
  void vacate(void* memory, size_t bytes) noexcept override { backend_->vacate(memory, bytes); }
  void upload(void* device, const void* host, size_t bytes) override {
    backend_->upload(device, host, bytes);
  }
  void download(void* host, const void* device, size_t bytes) override {
    backend_->download(host, device, bytes);
  }
  void copy(void* to, const void* from, size_t bytes) override { backend_->copy(to, from, bytes); }
  void run_on_host(int64_t tasks, const std::function<void(int64_t)>& work) override {
    backend_->run_on_host(tasks, work);
  }
  void begin_step(const CacheLayout& layout, const std::vector<SequenceSlice>& slices,
                  const std::vector<BlockEncoding>& encodings) override {
    backend_->begin_step(layout, slices, encodings);
  }
  // Each verb is seen: none is done again unseen.
  void run_step(const StepShape&, const std::function<void()>& verbs) override { verbs(); }
  void embed(const Matrix& table, const int32_t* ids, int64_t rows, float scale, bool add,
             float* x) override {
    backend_->embed(table, ids, rows, scale, add, x);
  }
  void gather_rows(const float* x, const int64_t* index, int64_t rows, int64_t width,
                   float* y) override {
    backend_->gather_rows(x, index, rows, width, y);
  }
  void linear(const Matrix& weight, const Vector& bias, const LinearInput& input, int64_t rows,
              bool add, float* y) override {
    backend_->linear(weight, bias, input, rows, add, y);
    observer_({weight, input, y, rows, add});
  }
  void activated_linear(const Matrix& weight, const Vector& bias, const LinearInput& input,
                        int64_t rows, const Gate& gate, const float* parameters,
                        float* y) override {
    backend_->activated_linear(weight, bias, input, rows, gate, parameters, y);
    observer_({weight, input, y, rows, false});
  }
  void experts(const ExpertsArgs& args, int64_t rows) override { backend_->experts(args, rows); }
  void gate_rows(const float* gates, int64_t gate_stride, int64_t groups, int64_t rows,
                 int64_t width, int64_t stride, float* x) override {
    backend_->gate_rows(gates, gate_stride, groups, rows, width, stride, x);
  }
  void head_linear(const HeadLinearArgs& args, int64_t rows) override {
    backend_->head_linear(args, rows);
  }
  void multiply_rows(const float* by, int64_t by_stride, int64_t rows, int64_t width,
                     float* x) override {
    backend_->multiply_rows(by, by_stride, rows, width, x);
  }
  void normalise(const LinearInput& input, int64_t rows, float* y) override {
    backend_->normalise(input, rows, y);
  }
  void add_rows(const LinearInput& input, int64_t rows, float scale, float* x) override {
    backend_->add_rows(input, rows, scale, x);
  }
  void cap_rows(float* x, int64_t rows, int64_t width, float scale, float cap) override {
    backend_->cap_rows(x, rows, width, scale, cap);
  }
  void rotate_and_append(const RotateArgs& args) override { backend_->rotate_and_append(args); }
  void encode(int64_t layer) override { backend_->encode(layer); }
  void attend(const AttendLayerArgs& args) override { backend_->attend(args); }
  bool samples_rows() const override { return backend_->samples_rows(); }
  std::vector<RowChoice> sample_rows(const float* logits, int64_t stride, int64_t vocab_size,
                                     const std::vector<RowSampling>& rows) override {
    return backend_->sample_rows(logits, stride, vocab_size, rows);
  }

 private:
  std::unique_ptr<Backend> backend_;
  Observer observer_;
};

}  // namespace onward
