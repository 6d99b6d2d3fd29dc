// The interface of a device: memory, packed weights, and the fused operations of a decoder, which
// are called verbs. The decoder, the cache and the engine use devices only through this class.
//
// Activations are float32 rows on the device. A row of n values takes activation_stride(n) floats,
// and the padding is 0. Weights and cache have their own dtypes; sums are float32.
// On one device and instruction set, a row of a result depends only on the inputs of that row: not
// on the other rows of the step, the number of threads or the split of a prompt into chunks.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/activation.h"
#include "backend/cache_layout.h"
#include "backend/layer_features.h"
#include "backend/routing.h"
#include "backend/row_sampling.h"
#include "base/buffer.h"
#include "base/dtype.h"

namespace onward {

constexpr int64_t kActivationLane = 16;
constexpr int64_t activation_stride(int64_t n) { return round_up(n, kActivationLane); }

// Consecutive rows of a stored tensor, in the format of the file. Rows are outputs.
struct TensorSource {
  const void* data = nullptr;
  size_t bytes = 0;
  DType dtype = DType::f32;
  int64_t rows = 0;
  int64_t columns = 0;
  const int32_t* row_order = nullptr;  // packed row r comes from stored row row_order[r]
  bool mapped = false;  // a read-only mapping: its pages can be dropped after packing
};

// The shape of one part of a weight: rows are outputs; a vector is one row.
struct PartShape {
  int64_t rows = 0;
  int64_t columns = 0;
};

// A weight in host memory, in the layout of a WeightStore of the same kind.
struct PackedBytes {
  const void* data = nullptr;
  size_t bytes = 0;
  bool mapped = false;  // a read-only mapping: its pages can be dropped after a copy
  // If given, it owns the memory, which is never written. A store that can compute from this memory
  // keeps the owner instead of copying.
  std::shared_ptr<const void> owner = nullptr;
};

// A weight matrix in the layout of the device. Its parts are stacked along the outputs (q, k, v of
// one product; gate and up of another). Each part begins at a multiple of kActivationLane.
struct Matrix {
  DType dtype = DType::f32;      // f32, f16, bf16, q8_0, q4_0 or q4_1
  int64_t outputs = 0;           // columns of the product, padded
  int64_t inputs = 0;            // padded
  std::vector<int64_t> offsets;  // first output of each part
  void* data = nullptr;          // device memory of the WeightStore; may be read-only

  bool empty() const { return data == nullptr; }
  int64_t output_bytes() const {
    const int64_t block = dtype_block_values(dtype);
    return (inputs + block - 1) / block * dtype_block_bytes(dtype);
  }
  int64_t bytes() const { return outputs * output_bytes(); }
};

// A float32 vector on the device (norm weight, bias), padded with zeros as activations are.
struct Vector {
  int64_t size = 0;  // padded
  float* data = nullptr;

  bool empty() const { return data == nullptr; }
};

// Owns the device memory of a model's weights.
class WeightStore {
 public:
  virtual ~WeightStore() = default;
  virtual std::string device() const = 0;  // the device of the memory: "cpu", "cuda:0"
  // Whether the device has a feature of layers.
  virtual bool has(LayerFeature feature) const = 0;
  // Converts and packs. Reads every source completely before it returns. Throws WeightError if a
  // source is shorter than its shape requires.
  virtual Matrix pack_matrix(const std::vector<TensorSource>& parts, DType dtype) = 0;
  virtual Vector pack_vector(const std::vector<TensorSource>& parts) = 0;
  // Makes a weight of these shapes from bytes that `packed` returned earlier. Copies the bytes or
  // keeps their owner. Throws WeightError for a wrong number of bytes. The caller must check that
  // the bytes have the present layout (packed_layout).
  virtual Matrix take_matrix(const std::vector<PartShape>& parts, DType dtype,
                             const PackedBytes& source) = 0;
  virtual Vector take_vector(const std::vector<PartShape>& parts, const PackedBytes& source) = 0;
  // The bytes of a weight, valid as long as the store.
  virtual PackedBytes packed(const Matrix& matrix) const = 0;
  virtual PackedBytes packed(const Vector& vector) const = 0;
  // The version of the layout of these bytes; a change of the layout increases it.
  virtual int64_t packed_layout() const = 0;
  virtual size_t bytes_used() const = 0;  // includes memory that is kept in place
};

// The blocks of one sequence in one layer group. Entry b has positions [16 b, 16 b + 16). It is
// null if no token of the step sees these positions exactly (`exact`) or as codes (`coded`).
struct GroupBlocks {
  void* const* exact = nullptr;
  void* const* coded = nullptr;
};

// Consecutive tokens of one sequence in a step.
struct SequenceSlice {
  int64_t first_row = 0;  // in the rows of the step
  int64_t tokens = 0;
  int64_t first_position = 0;           // in the sequence
  const GroupBlocks* blocks = nullptr;  // by layer group
};

// A block with 16 written tokens that later tokens of the step see as codes.
struct BlockEncoding {
  int64_t group = 0;
  const void* exact = nullptr;
  void* coded = nullptr;
  // Block 0 of the same sequence if it stays exact, otherwise null. Keys are coded relative to the
  // mean of some of its keys. A constant does not change the softmax, but it would waste codes.
  const void* first = nullptr;
};

// Steps of equal shape call the same verbs with the same arguments. They differ only in the tables
// of begin_step and in the contents of the buffers.
struct StepShape {
  const void* caller = nullptr;  // the decoder; several decoders may share a device
  int64_t buffers = 0;           // changes whenever a buffer of the caller has moved
  int64_t rows = 0;
  int64_t logits_rows = 0;

  auto operator<=>(const StepShape&) const = default;
};

// A norm of rows: RMSNorm (Zhang & Sennrich 2019) or LayerNorm (Ba et al. 2016).
struct Norm {
  Vector weight;  // empty: the rows stay as they are
  float eps = 0;
  int64_t size = 0;    // values of a row, without padding
  bool layer = false;  // LayerNorm
  Vector bias;         // of a LayerNorm; empty: none

  bool empty() const { return weight.empty(); }
};

// The input rows of a product, unchanged or normalised. They are prepared once, in the dtype that
// the weights need.
struct LinearInput {
  const float* x = nullptr;  // (rows, inputs)
  Norm norm;
};

// A norm of the heads of queries or keys.
struct HeadNorm {
  enum class Over {
    head,   // each head, all with one weight (head_dim)
    heads,  // each head with its own weight (heads * head_dim)
    all     // all heads of a token together, with one weight (heads * head_dim)
  };

  Vector weight;       // empty: no norm
  Vector bias;         // like the weight, of a LayerNorm; empty: none
  bool layer = false;  // LayerNorm; otherwise RMSNorm
  Over over = Over::head;
  bool after_rotation = false;
  int64_t size = 0;  // with Over::head: the first values of a head that it covers; 0: all

  bool empty() const { return weight.empty(); }
};

// Rotary embedding and append, for one layer of one step. In this order: clip, norms, rotation,
// norms after the rotation, scale of the queries.
struct RotateArgs {
  float* q = nullptr;  // (rows, q_stride): heads
  int64_t q_stride = 0;
  float* k = nullptr;  // (rows, kv_stride): heads; null: the layer appends nothing
  float* v = nullptr;  // (rows, kv_stride): heads; may be k, if the values are the part of k that
                       // does not rotate
  int64_t kv_stride = 0;
  // Values [rotated_from, head_dim) of a head of q and k rotate, in pairs of its first and its
  // second half.
  int64_t rotated_from = 0;
  const float* cosines = nullptr;  // (rows, pairs), times the attention factor
  const float* sines = nullptr;    // (rows, pairs)
  float clip = 0;                  // limits q, k and v to [-clip, clip]; 0: not
  HeadNorm q_norm;
  HeadNorm k_norm;
  bool v_norm = false;  // RMSNorm over each head of v, without a weight
  float norm_eps = 0;
  float v_scale = 1;                // v is multiplied by it
  const float* q_scales = nullptr;  // (rows): the queries of a row are multiplied by it; or null
  int64_t num_heads = 0;
  int64_t layer = 0;
};

struct AttendLayerArgs {
  const float* q = nullptr;  // (rows, q_stride): rotated queries at the start of each row
  int64_t q_stride = 0;
  float* out = nullptr;  // (rows, activation_stride(num_heads * value_dim))
  int64_t num_heads = 0;
  int64_t layer = 0;
  float scale = 0;
  float softcap = 0;    // score = softcap * tanh(score / softcap), after the scale; 0: none
  Vector sink_logits;   // (num_heads): one more logit in the softmax, without a value; or empty
  Vector alibi_slopes;  // (num_heads): score += slope * (key position - position); or empty
  // (rows, head_dim / 2). If the layer's group has sink tokens (cache_layout.h), these rotate a
  // query back to the last position that sees the sinks without a gap; otherwise null.
  const float* sink_cosines = nullptr;
  const float* sink_sines = nullptr;
};

// A product with a matrix of its own for each head. The parts of the weight, (outputs, inputs), lie
// in the order of the heads.
struct HeadLinearArgs {
  const Matrix* weight = nullptr;
  int64_t heads = 0;
  int64_t inputs = 0;        // of a head, without padding
  int64_t outputs = 0;       // of a head, without padding
  int64_t copied = 0;        // values after the inputs of a head that are copied after its outputs
  const float* x = nullptr;  // (rows, x_stride): heads of inputs + copied values
  int64_t x_stride = 0;
  float* y = nullptr;  // (rows, y_stride): heads of outputs + copied values, then zeros
  int64_t y_stride = 0;
};

// The experts of one layer (Shazeer et al. 2017). The parts of a stacked matrix lie in the order of
// the experts.
struct ExpertsArgs {
  LinearInput input;               // (rows, hidden)
  LinearInput router_input;        // (rows, hidden); x null: as the input
  const Matrix* router = nullptr;  // (experts, hidden)
  float router_scale = 1;          // of the router's logits
  Vector router_bias;
  Vector correction;  // (experts), for the choice alone; empty: none
  Vector scales;      // (experts): times the weight of a chosen expert; empty: none
  Routing routing;
  bool weighted_input = false;  // the weight multiplies the input of an expert, not its output
  const Matrix* up =
      nullptr;  // parts gate 0, up 0, gate 1, up 1, ...; up 0, up 1, ... if not gated
  Vector up_bias;
  Gate gate;
  const float* activation_parameters = nullptr;
  const Matrix* down = nullptr;  // parts (hidden, intermediate)
  Vector down_bias;
  float* y = nullptr;  // (rows, stride of hidden): the weighted sum, in ascending order of experts
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;  // "cpu:avx512bf16"
  virtual int threads() const = 0;

  // Device memory, 64-byte aligned and zeroed. Throws std::bad_alloc.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
  // Device memory for a cache, aligned to at least 64 bytes. If the device supports it, pages take
  // memory at the first write. unreserve needs the same size. Throws std::bad_alloc.
  virtual void* reserve(size_t bytes) = 0;
  virtual void unreserve(void* memory, size_t bytes) noexcept = 0;
  // Declares that the contents of a part of reserved memory are not needed. Its pages may be
  // returned to the system until the next write; until then the contents are unspecified.
  virtual void vacate(void* memory, size_t bytes) noexcept = 0;
  virtual void upload(void* device, const void* host, size_t bytes) = 0;
  virtual void download(void* host, const void* device, size_t bytes) = 0;
  virtual void copy(void* to, const void* from, size_t bytes) = 0;  // both on the device

  // Calls work(task) for every task in [0, tasks) in any order, on threads() threads of the host,
  // and returns when all have finished. work must not throw.
  virtual void run_on_host(int64_t tasks, const std::function<void(int64_t)>& work) = 0;

  // Sets the tables of a step for all layers. They must outlive the step. The slices cover the rows
  // of the step in order. Each layer encodes its part of `encodings` before its attention.
  virtual void begin_step(const CacheLayout& layout, const std::vector<SequenceSlice>& slices,
                          const std::vector<BlockEncoding>& encodings) = 0;
  // Calls verbs(), which may call only the functions below, or repeats the recorded calls of an
  // earlier step of equal shape. An exception of verbs() ends the step.
  virtual void run_step(const StepShape& shape, const std::function<void()>& verbs) = 0;

  // x[r] = table row ids[r] * scale; with `add`, x[r] += table row ids[r] * scale. x is
  // (rows, hidden); ids are on the device.
  virtual void embed(const Matrix& table, const int32_t* ids, int64_t rows, float scale, bool add,
                     float* x) = 0;
  // y[r] = x[index[r]] for whole rows of `width` floats; index is on the device.
  virtual void gather_rows(const float* x, const int64_t* index, int64_t rows, int64_t width,
                           float* y) = 0;
  // y = input W^T + bias; if `add`, y += input W^T + bias. y is (rows, outputs).
  virtual void linear(const Matrix& weight, const Vector& bias, const LinearInput& input,
                      int64_t rows, bool add, float* y) = 0;
  // The product and the activation of an MLP (backend/activation.h). If gated, gate and up are the
  // two parts of input W^T + bias and have equal width, and y is (rows, outputs / 2); otherwise y
  // is (rows, outputs). `parameters` are the activation's, on the device, or null.
  virtual void activated_linear(const Matrix& weight, const Vector& bias, const LinearInput& input,
                                int64_t rows, const Gate& gate, const float* parameters,
                                float* y) = 0;
  // Runs the chosen experts of each row.
  virtual void experts(const ExpertsArgs& args, int64_t rows) = 0;
  // The product of each head's values with the head's own matrix.
  virtual void head_linear(const HeadLinearArgs& args, int64_t rows) = 0;
  // x[r][i] *= sigmoid(gates[r][i / (width / groups)]) for i < width. gates is (rows, gate_stride),
  // x is (rows, stride).
  virtual void gate_rows(const float* gates, int64_t gate_stride, int64_t groups, int64_t rows,
                         int64_t width, int64_t stride, float* x) = 0;
  // x[r][i] *= by[r * by_stride + i]; x is (rows, width), and by_stride 0 repeats one row.
  virtual void multiply_rows(const float* by, int64_t by_stride, int64_t rows, int64_t width,
                             float* x) = 0;
  // y = norm(input). y is (rows, stride of input) and may be input.x.
  virtual void normalise(const LinearInput& input, int64_t rows, float* y) = 0;
  // x += scale * norm(input). x is (rows, stride of input).
  virtual void add_rows(const LinearInput& input, int64_t rows, float scale, float* x) = 0;
  // x = cap * tanh(scale * x / cap), or scale * x if cap is 0. x is (rows, width).
  virtual void cap_rows(float* x, int64_t rows, int64_t width, float scale, float cap) = 0;
  // Rotates q and k in place and stores k and v in the exact blocks of the cache.
  virtual void rotate_and_append(const RotateArgs& args) = 0;
  // Encodes the layer's part of the encodings of the step that belong to the layer's group. The
  // codes depend only on the exact block and the first block.
  virtual void encode(int64_t layer) = 0;
  // Causal attention. A token sees the newest tokens within the window and the chunk of its layer
  // group, and the sink tokens of the group. CacheLayout decides which of them it sees as codes.
  virtual void attend(const AttendLayerArgs& args) = 0;

  // Whether the device can sample. Otherwise the logits are sampled on the host.
  virtual bool samples_rows() const { return false; }
  // Chooses a token for each entry of `rows` from logits (rows, stride) on the device, which are
  // not changed. The token equals the choice of the host's sampler, unless a sum of weights is
  // within about 1e-13 of its threshold, because the order of the sums differs from the host's.
  virtual std::vector<RowChoice> sample_rows(const float* logits, int64_t stride,
                                             int64_t vocab_size,
                                             const std::vector<RowSampling>& rows);
};

inline std::vector<RowChoice> Backend::sample_rows(const float*, int64_t, int64_t,
                                                   const std::vector<RowSampling>& rows) {
  return std::vector<RowChoice>(rows.size());
}

}  // namespace onward
