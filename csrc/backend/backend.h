// What a device must be able to do: hold memory, pack weights, and run the fused verbs of a
// decoder. The decoder, the cache and the engine see devices through this class only.
//
// Activations are float32 rows on the device, padded: a row of n values takes activation_stride(n)
// floats, and the padding is 0. Weights and cache have dtypes of their own; sums are float32.
// On one device and instruction set, a row of any result depends on that row's inputs alone: never
// on the other rows of the step, on the number of threads or on how a prompt was cut in chunks.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/cache_layout.h"
#include "backend/row_sampling.h"
#include "base/buffer.h"
#include "base/dtype.h"

namespace onward {

constexpr int64_t kActivationLane = 16;
constexpr int64_t activation_stride(int64_t n) { return round_up(n, kActivationLane); }

// A run of rows of a stored tensor, as a file holds them. Rows are outputs.
struct TensorSource {
  const void* data = nullptr;
  size_t bytes = 0;
  DType dtype = DType::f32;
  int64_t rows = 0;
  int64_t columns = 0;
  const int32_t* row_order = nullptr;  // packed row r comes from stored row row_order[r]
  bool mapped = false;  // from a file, read-only: its pages can be dropped once they are packed
};

// The shape of one part of a weight: rows are outputs; a vector is one row.
struct PartShape {
  int64_t rows = 0;
  int64_t columns = 0;
};

// A weight in the layout that a WeightStore of the same kind gave out, in host memory.
struct PackedBytes {
  const void* data = nullptr;
  size_t bytes = 0;
  bool mapped = false;  // from a file, read-only: its pages can be dropped once they are taken
  // Where given, keeps memory that nobody writes: a store that can compute from it where it lies
  // holds on to this and does not copy.
  std::shared_ptr<const void> owner = nullptr;
};

// A weight matrix in the device's own layout. Parts stacked along the outputs each begin at a
// multiple of kActivationLane (q, k, v of one product; gate and up of another).
struct Matrix {
  DType dtype = DType::f32;      // f32, f16, bf16, q8_0, q4_0 or q4_1
  int64_t outputs = 0;           // padded: columns of the product
  int64_t inputs = 0;            // padded
  std::vector<int64_t> offsets;  // first output of each part
  void* data = nullptr;          // device memory, kept by the WeightStore; may be read-only

  bool empty() const { return data == nullptr; }
  int64_t output_bytes() const {
    const int64_t block = dtype_block_values(dtype);
    return (inputs + block - 1) / block * dtype_block_bytes(dtype);
  }
  int64_t bytes() const { return outputs * output_bytes(); }
};

// A float32 vector on the device (norm weight, bias), padded with zeros like the rows it meets.
struct Vector {
  int64_t size = 0;  // padded
  float* data = nullptr;

  bool empty() const { return data == nullptr; }
};

// Owns the device memory of a model's weights.
class WeightStore {
 public:
  virtual ~WeightStore() = default;
  virtual std::string device() const = 0;  // whose memory it is: "cpu", "cuda:0"
  // Converts and packs; reads every source fully before it returns. WeightError when a source is
  // shorter than its shape says.
  virtual Matrix pack_matrix(const std::vector<TensorSource>& parts, DType dtype) = 0;
  virtual Vector pack_vector(const std::vector<TensorSource>& parts) = 0;
  // What pack_* made of parts of these shapes, from bytes that `packed` gave out at another time.
  // Copies them, or keeps their owner; WeightError for any other number of bytes. Whether the bytes
  // are of the present layout (packed_layout) is for the caller to know.
  virtual Matrix take_matrix(const std::vector<PartShape>& parts, DType dtype,
                             const PackedBytes& source) = 0;
  virtual Vector take_vector(const std::vector<PartShape>& parts, const PackedBytes& source) = 0;
  // A weight's bytes, which stay valid as long as the store.
  virtual PackedBytes packed(const Matrix& matrix) const = 0;
  virtual PackedBytes packed(const Vector& vector) const = 0;
  // Of the bytes that `packed` gives: raised with each change of them.
  virtual int64_t packed_layout() const = 0;
  virtual size_t bytes_used() const = 0;  // those kept in place too
};

// The blocks of one sequence in one layer group: entry b holds positions [16 b, 16 b + 16), and is
// null where no token of the step sees those exactly, or as codes.
struct GroupBlocks {
  void* const* exact = nullptr;
  void* const* coded = nullptr;
};

// Consecutive tokens of one sequence inside a step.
struct SequenceSlice {
  int64_t first_row = 0;  // among the step's rows
  int64_t tokens = 0;
  int64_t first_position = 0;           // in the sequence
  const GroupBlocks* blocks = nullptr;  // by layer group
};

// A block whose 16 tokens are all written, and that the step's later tokens see as codes.
struct BlockEncoding {
  int64_t group = 0;
  const void* exact = nullptr;
  void* coded = nullptr;
  // Block 0 of the same sequence where that stays exact, else null. The mean of some of its keys is
  // what keys are coded relative to: softmax does not see a constant, and codes see it well.
  const void* first = nullptr;
};

// Steps of equal shape call the same verbs with the same arguments: they differ in what begin_step
// told, and in what the buffers hold.
struct StepShape {
  const void* caller = nullptr;  // who calls: several decoders may share a device
  int64_t buffers = 0;           // a new number whenever one of the caller's buffers has moved
  int64_t rows = 0;
  int64_t logits_rows = 0;

  auto operator<=>(const StepShape&) const = default;
};

// The rows that go into a product, as they are or normalised on the way: they are prepared once, in
// the dtype that the weights ask for.
struct LinearInput {
  const float* x = nullptr;  // (rows, inputs)
  Vector norm;               // or empty: RMSNorm over the first `size` values of each row
  float norm_eps = 0;
  int64_t size = 0;
};

// Rotary embedding and append, for one layer of one step.
struct RotateArgs {
  float* qkv = nullptr;  // (rows, qkv_stride): q heads, then k heads, then v heads at the offsets
  int64_t qkv_stride = 0;
  int64_t k_offset = 0;
  int64_t v_offset = 0;
  const float* cosines = nullptr;  // (rows, head_dim / 2), times the attention factor
  const float* sines = nullptr;    // (rows, head_dim / 2)
  Vector q_norm;  // (head_dim) each, or empty: RMSNorm per head before the rotation
  Vector k_norm;
  float norm_eps = 0;
  int64_t num_heads = 0;
  int64_t layer = 0;
};

struct AttendLayerArgs {
  const float* qkv = nullptr;  // rotated queries at the row's start
  int64_t qkv_stride = 0;
  float* out = nullptr;  // (rows, activation_stride(num_heads * head_dim))
  int64_t num_heads = 0;
  int64_t layer = 0;
  float scale = 0;
  // Where the layer's group has sink tokens (cache_layout.h), else null: what turns a row's rotated
  // query back to the last position at which it would see them without a gap. (rows, head_dim / 2)
  const float* sink_cosines = nullptr;
  const float* sink_sines = nullptr;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;  // "cpu:avx512bf16"
  virtual int threads() const = 0;

  // Device memory, 64-byte aligned and zeroed. std::bad_alloc when there is none.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
  // Device memory for a cache, aligned to 64 bytes at least: it takes room when it is first written
  // to, as far as the device can do that. Given back whole, with its size. std::bad_alloc.
  virtual void* reserve(size_t bytes) = 0;
  virtual void unreserve(void* memory, size_t bytes) noexcept = 0;
  // A part of reserved memory whose contents nobody wants any more: its room may go back until it
  // is written to again, and what it holds until then is unspecified.
  virtual void vacate(void* memory, size_t bytes) noexcept = 0;
  virtual void upload(void* device, const void* host, size_t bytes) = 0;
  virtual void download(void* host, const void* device, size_t bytes) = 0;
  virtual void copy(void* to, const void* from, size_t bytes) = 0;  // both on the device

  // Calls work(task) for every task in [0, tasks) on the host, on the threads that threads() counts
  // and in any order; returns when all are done. work must not throw.
  virtual void run_on_host(int64_t tasks, const std::function<void(int64_t)>& work) = 0;

  // What the verbs of a step are about, for all its layers; it has to outlive them. Slices cover
  // the step's rows in order; encodings are made in each layer, before its attention.
  virtual void begin_step(const CacheLayout& layout, const std::vector<SequenceSlice>& slices,
                          const std::vector<BlockEncoding>& encodings) = 0;
  // Calls verbs(), which calls those below and nothing else of this class; or does again what they
  // did in an earlier step of equal shape. What verbs() throws ends the step.
  virtual void run_step(const StepShape& shape, const std::function<void()>& verbs) = 0;

  // x[r] = table row ids[r]; ids on the device. (rows, hidden)
  virtual void embed(const Matrix& table, const int32_t* ids, int64_t rows, float* x) = 0;
  // y[r] = x[index[r]] for whole rows of `width` floats; index on the device.
  virtual void gather_rows(const float* x, const int64_t* index, int64_t rows, int64_t width,
                           float* y) = 0;
  // y = input W^T + bias, or y += that. y (rows, outputs).
  virtual void linear(const Matrix& weight, const Vector& bias, const LinearInput& input,
                      int64_t rows, bool add, float* y) = 0;
  // y = silu(gate) * up, where gate and up are the two parts of input W^T + bias, of equal width.
  // y (rows, outputs / 2). (SwiGLU, Shazeer 2020)
  virtual void gated_linear(const Matrix& weight, const Vector& bias, const LinearInput& input,
                            int64_t rows, float* y) = 0;
  // Rotates q and k in place and stores k and v in the cache's exact blocks.
  virtual void rotate_and_append(const RotateArgs& args) = 0;
  // Codes one layer's part of each of the step's encodings of its group; other groups' are passed
  // over. The same bits for the same exact block and first block.
  virtual void encode(int64_t layer) = 0;
  // Causal attention. A token sees the newest tokens that its layer group's window has, and the
  // group's sink tokens; which of them as codes is the layout's rule.
  virtual void attend(const AttendLayerArgs& args) = 0;

  // Whether the device samples; otherwise logits go to the host, which always can.
  virtual bool samples_rows() const { return false; }
  // A choice for each entry of `rows`, from logits (rows, stride) on the device, which stay as they
  // are. The token is the one that the sampler on the host would choose, except where a sum of
  // weights comes within about 1e-13 of what it is held against: sums are not in the host's order.
  virtual std::vector<RowChoice> sample_rows(const float* logits, int64_t stride,
                                             int64_t vocab_size,
                                             const std::vector<RowSampling>& rows);
};

inline std::vector<RowChoice> Backend::sample_rows(const float*, int64_t, int64_t,
                                                   const std::vector<RowSampling>& rows) {
  return std::vector<RowChoice>(rows.size());
}

}  // namespace onward
