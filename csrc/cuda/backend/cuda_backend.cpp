// The CUDA backend: converts verbs to launches, owns their scratch memory, and records and replays
// the launches of decode steps.
#include "cuda/backend/cuda_backend.h"

#include <map>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/thread_pool.h"
#include "cuda/backend/row_sampler.h"
#include "cuda/backend/step_tables.h"
#include "cuda/kernels/verbs.h"

namespace onward::cuda {
namespace {

// Steps with more rows are limited by arithmetic; the cost of their launches does not matter.
constexpr int64_t kMostRecordedRows = 64;
// The largest number of recordings; then all are dropped.
constexpr size_t kMostRecordings = 64;

[[noreturn]] void lacks(const std::string& feature) {
  throw InvalidArgument("device: cuda does not support " + feature +
                        " yet, which this model needs; use device cpu");
}

// Device memory that grows to the largest requested size.
class Scratch {
 public:
  explicit Scratch(Stream& stream) : stream_(stream) {}
  ~Scratch() { stream_.release(memory_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <typename T = void>
  T* data() const {
    return static_cast<T*>(memory_);
  }
  // Returns whether the memory has moved.
  bool grow(int64_t bytes) {
    if (bytes <= bytes_) return false;
    stream_.release(memory_);
    memory_ = nullptr;
    bytes_ = 0;
    memory_ = stream_.allocate(static_cast<size_t>(bytes));
    bytes_ = bytes;
    return true;
  }

 private:
  Stream& stream_;
  void* memory_ = nullptr;
  int64_t bytes_ = 0;
};

class CudaBackend final : public Backend {
 public:
  CudaBackend(int device, int threads)
      : stream_(device, threads),
        name_(std::string(build_name()) + ":" + stream_.description()),
        pool_(threads),
        tables_(stream_),
        rows_(stream_),
        gate_up_(stream_),
        attention_(stream_),
        sampler_(stream_) {}

  std::string name() const override { return name_; }
  int threads() const override { return pool_.threads(); }

  void* allocate(size_t bytes) override { return stream_.allocate(bytes); }
  void release(void* memory) noexcept override { stream_.release(memory); }
  void* reserve(size_t bytes) override { return stream_.allocate(bytes); }
  void unreserve(void* memory, size_t) noexcept override { stream_.release(memory); }
  void vacate(void*, size_t) noexcept override {}  // a plain allocation keeps its memory
  void upload(void* device, const void* host, size_t bytes) override {
    stream_.upload(device, host, bytes);
  }
  void download(void* host, const void* device, size_t bytes) override {
    stream_.download(host, device, bytes);
  }
  void copy(void* to, const void* from, size_t bytes) override { stream_.copy(to, from, bytes); }
  void run_on_host(int64_t tasks, const std::function<void(int64_t)>& work) override {
    pool_.run(tasks, work);
  }

  void begin_step(const CacheLayout& layout, const std::vector<SequenceSlice>& slices,
                  const std::vector<BlockEncoding>& encodings) override {
    layout_ = &layout;
    encodes_ = !encodings.empty();
    if (tables_.fill(layout, slices, encodings)) recordings_.clear();
  }

  void run_step(const StepShape& shape, const std::function<void()>& verbs) override {
    const StepView& step = tables_.view();
    forget_stale();  // an earlier step may have been abandoned
    if (encodes_ || shape.rows > kMostRecordedRows) {
      verbs();
      return forget_stale();
    }
    const Key key = {shape, step.num_slices, step.most_tokens, step.most_positions};
    const auto found = recordings_.find(key);
    if (found == recordings_.end()) {
      // The first step of a shape grows the scratch memory; the second step is recorded.
      if (recordings_.size() >= kMostRecordings) recordings_.clear();
      verbs();
      forget_stale();
      recordings_[key] = nullptr;
    } else if (found->second == nullptr) {
      found->second = stream_.record(verbs);
    } else {
      stream_.replay(*found->second);
    }
  }

  void embed(const Matrix& table, const int32_t* ids, int64_t rows, float, bool,
             float* x) override {
    cuda::embed(stream_, table, ids, rows, x);
  }
  void gather_rows(const float* x, const int64_t* index, int64_t rows, int64_t width,
                   float* y) override {
    cuda::gather_rows(stream_, x, index, rows, width, y);
  }
  void linear(const Matrix& weight, const Vector& bias, const LinearInput& input, int64_t rows,
              bool add, float* y) override {
    moved_ |= rows_.grow(prepared_bytes(weight, rows));
    const PreparedRows x = prepare(stream_, weight, input, rows, rows_.data());
    const Product product = {&weight, bias.data, x, rows, add, y};
    switch (weight.dtype) {
      case DType::f32:
        return multiply_f32(stream_, product);
      case DType::bf16:
      case DType::f16:
        return multiply_halves(stream_, product);
      default:
        return multiply_groups(stream_, product);
    }
  }
  void activated_linear(const Matrix& weight, const Vector& bias, const LinearInput& input,
                        int64_t rows, const Gate&, const float*, float* y) override {
    moved_ |= gate_up_.grow(rows * weight.outputs * static_cast<int64_t>(sizeof(float)));
    linear(weight, bias, input, rows, false, gate_up_.data<float>());
    gate(stream_, gate_up_.data<float>(), rows, weight.outputs / 2, y);
  }
  void normalise(const LinearInput& input, int64_t rows, float* y) override {
    cuda::normalise(stream_, input, rows, y);
  }
  // Models that need these are refused when they are loaded (WeightStore::has).
  void experts(const ExpertsArgs&, int64_t) override { lacks("experts"); }
  void gate_rows(const float*, int64_t, int64_t, int64_t, int64_t, int64_t, float*) override {
    lacks("gates of rows");
  }
  void head_linear(const HeadLinearArgs&, int64_t) override { lacks("products of heads"); }
  void multiply_rows(const float*, int64_t, int64_t, int64_t, float*) override {
    lacks("products of rows");
  }
  void add_rows(const LinearInput&, int64_t, float, float*) override {
    lacks("norms after blocks");
  }
  void cap_rows(float*, int64_t, int64_t, float, float) override { lacks("soft-capped logits"); }
  void rotate_and_append(const RotateArgs& args) override {
    if (args.k == nullptr) lacks("layers that append nothing");
    if (args.rotated_from > 0) lacks("rotation of a part of a head");
    if (args.clip > 0) lacks("limits of queries, keys and values");
    if (args.v_scale != 1) lacks("a factor of values");
    if (args.v_norm) lacks("a norm of values");
    if (args.q_scales != nullptr) lacks("scales of queries");
    for (const HeadNorm* norm : {&args.q_norm, &args.k_norm}) {
      if (norm->over != HeadNorm::Over::head) lacks("norms of queries and keys over several heads");
      if (norm->layer) lacks("LayerNorm of queries and keys");
      if (norm->after_rotation) lacks("norms of queries and keys after the rotation");
    }
    cuda::rotate_and_append(stream_, args, layer_cache(*layout_, args.layer), tables_.view());
  }
  void encode(int64_t layer) override {
    const LayerCache cache = layer_cache(*layout_, layer);
    cuda::encode(stream_, cache, tables_.encodings(cache.group),
                 tables_.encoding_count(cache.group));
  }
  void attend(const AttendLayerArgs& args) override {
    if (args.softcap > 0) lacks("soft-capped scores");
    if (!args.sink_logits.empty()) lacks("sink logits");
    if (!args.alibi_slopes.empty()) lacks("ALiBi slopes");
    const LayerCache cache = layer_cache(*layout_, args.layer);
    const StepView& step = tables_.view();
    if (sees_units(cache)) {
      moved_ |= attention_.grow(attend_codes_scratch(args, cache, step, stream_.processors()));
      return attend_codes(stream_, args, cache, step, attention_.data());
    }
    // All rows of a layer use the same kernel, so the result of a row does not depend on the step.
    if (attends_in_tiles(cache)) {
      moved_ |= attention_.grow(attend_tiles_scratch(args, cache, step, stream_.processors()));
      return attend_tiles(stream_, args, cache, step, attention_.data());
    }
    moved_ |= attention_.grow(attend_exact_scratch(args, cache, step, stream_.processors()));
    attend_exact(stream_, args, cache, step, attention_.data());
  }
  bool samples_rows() const override { return true; }
  std::vector<RowChoice> sample_rows(const float* logits, int64_t stride, int64_t vocab_size,
                                     const std::vector<RowSampling>& rows) override {
    return sampler_.sample(logits, stride, vocab_size, rows);
  }

 private:
  using Key = std::tuple<StepShape, int32_t, int32_t, int64_t>;

  // Drops recordings that use scratch memory which has moved.
  void forget_stale() {
    if (std::exchange(moved_, false)) recordings_.clear();
  }

  Stream stream_;
  std::string name_;
  ThreadPool pool_;
  StepTables tables_;
  Scratch rows_;       // the prepared rows of a product
  Scratch gate_up_;    // (rows, gate | up)
  Scratch attention_;  // states of the softmax
  RowSampler sampler_;
  bool moved_ = false;  // whether scratch memory has moved since the last recording
  // Of the present step:
  const CacheLayout* layout_ = nullptr;
  bool encodes_ = false;
  std::map<Key, std::unique_ptr<Recording>> recordings_;
};

}  // namespace

const char* build_name() { return ONWARD_CUDA_BUILD; }

std::unique_ptr<Backend> make_backend(int device, int threads) {
  if (threads < 1) {
    throw InvalidArgument("threads: found " + std::to_string(threads) + ", expected at least 1");
  }
  return std::make_unique<CudaBackend>(device, threads);
}

}  // namespace onward::cuda
