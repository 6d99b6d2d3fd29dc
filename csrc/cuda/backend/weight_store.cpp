// Packs weights into the layout of the CUDA kernels (tiles.h) on host threads, and uploads them to
// the device.
#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/error.h"
#include "base/half.h"
#include "base/thread_pool.h"
#include "cuda/backend/cuda_backend.h"
#include "cuda/kernels/tiles.h"
#include "formats/range_check.h"
#include "formats/sources.h"

namespace onward::cuda {
namespace {

// Increase it with every change of the bytes. The layouts of the CPU have numbers below 1,000.
constexpr int64_t kPackedLayout = 1002;

// Writes the 16 outputs of a panel. `data` is the whole matrix.
class PanelWriter {
 public:
  PanelWriter(const Matrix& matrix, char* data) : matrix_(matrix), data_(data) {}

  void write(int64_t panel, const OutputSource* outputs) const {
    for (int64_t tile = 0; tile < tiles(); ++tile) {
      for (int64_t row = 0; row < kTileOutputs; ++row) {
        if (dtype_block_values(matrix_.dtype) > 1) {
          write_group(panel, tile, row, packed_group(matrix_.dtype, outputs[row], tile));
        } else {
          float values[kTileInputs];
          read_values(outputs[row], tile * kTileInputs, kTileInputs, values);
          write_floats(panel, tile, row, values);
        }
      }
    }
  }

 private:
  int64_t tiles() const { return tiles_of(matrix_.inputs); }

  void write_floats(int64_t panel, int64_t tile, int64_t row, const float* values) const {
    if (matrix_.dtype == DType::f32) {
      float* out = reinterpret_cast<float*>(data_) + panel * matrix_.inputs * kTileOutputs;
      for (int64_t i = 0; i < kTileInputs; ++i) {
        const int64_t k = tile * kTileInputs + i;
        if (k >= matrix_.inputs) return;
        out[(k / 4 * kTileOutputs + row) * 4 + k % 4] = values[i];
      }
      return;
    }
    const int64_t begin = (panel * tiles() + tile) * weight_tile_bytes(matrix_.dtype);
    uint16_t* out = reinterpret_cast<uint16_t*>(data_ + begin);
    for (int64_t i = 0; i < kTileInputs; ++i) {
      const int64_t lane = row % 8 * 4 + i / 8;
      out[(row / 8 * 32 + lane) * 8 + i % 8] =
          matrix_.dtype == DType::f16 ? float_to_f16(values[i]) : float_to_bf16(values[i]);
    }
  }

  void write_group(int64_t panel, int64_t tile, int64_t row, const WeightBlock& block) const {
    const DType dtype = matrix_.dtype;
    char* const panel_begin = data_ + panel * tiles() * weight_tile_bytes(dtype);
    for (int64_t k = 0; k < kTileInputs; ++k) {
      const int64_t lane = row % 8 * 4 + k / 8, upper = row / 8, i = k % 8;
      if (dtype == DType::q8_0) {
        char& byte = panel_begin[tile * weight_tile_bytes(dtype) + lane * 16 + upper * 8 + i];
        byte = static_cast<char>(block.codes[k] ^ 0x80);  // from offset 128 to two's complement
        continue;
      }
      char& byte = panel_begin[nibble_tile_offset(tile, tiles()) +
                               lane * nibble_lane_stride(tile, tiles()) + upper * 4 + i % 4];
      const auto code = static_cast<uint8_t>(block.codes[k]);
      const auto kept = static_cast<uint8_t>(byte);
      byte = static_cast<char>(i < 4 ? (kept & 0xf0) | code : (kept & 0x0f) | code << 4);
    }
    const int64_t place = (panel * tiles() + tile) * kTileOutputs + row;
    char* const scales = data_ + weight_tiles_bytes(dtype, matrix_.outputs, matrix_.inputs);
    reinterpret_cast<uint16_t*>(scales)[place] = block.scale;
    if (dtype != DType::q4_1) return;
    char* const minimums = scales + scales_bytes(matrix_.outputs, matrix_.inputs);
    reinterpret_cast<uint16_t*>(minimums)[place] = block.minimum;
  }

  const Matrix& matrix_;
  char* data_;
};

class CudaWeightStore final : public WeightStore {
 public:
  CudaWeightStore(int device, int threads)
      : stream_(device, threads), pool_(threads), device_(device) {}
  ~CudaWeightStore() override {
    for (void* memory : memory_) stream_.release(memory);
  }

  std::string device() const override {
    const std::string build = build_name();
    return build == "cuda" ? build + ":" + std::to_string(device_) : build;
  }
  bool has(LayerFeature feature) const override { return feature == LayerFeature::layer_heads; }

  Matrix pack_matrix(const std::vector<TensorSource>& parts, DType dtype) override {
    const std::vector<OutputSource> outputs = outputs_of(parts);
    Matrix matrix = planned_matrix(shapes_of(parts), dtype);
    AlignedBuffer host(bytes_of(matrix));
    const PanelWriter writer(matrix, host.data<char>());
    RangeCheck range(parts, outputs, matrix);
    pool_.run(matrix.outputs / kTileOutputs, [&](int64_t panel) {
      range.see(panel * kTileOutputs, kTileOutputs);
      writer.write(panel, outputs.data() + panel * kTileOutputs);
    });
    range.finish();
    for (const TensorSource& part : parts) {
      if (part.mapped)
        drop_whole_pages(part.data, static_cast<size_t>(part.rows * row_bytes(part)));
    }
    matrix.data = bring(host.data(), host.bytes());
    return matrix;
  }

  Vector pack_vector(const std::vector<TensorSource>& parts) override {
    Vector vector;
    vector.size = vector_size(shapes_of(parts));
    std::vector<float> values(static_cast<size_t>(vector.size));
    read_vector(parts, values.data());
    vector.data = static_cast<float*>(bring(values.data(), values.size() * sizeof(float)));
    return vector;
  }

  Matrix take_matrix(const std::vector<PartShape>& parts, DType dtype,
                     const PackedBytes& source) override {
    Matrix matrix = planned_matrix(parts, dtype);
    matrix.data = take(source, bytes_of(matrix));
    return matrix;
  }

  Vector take_vector(const std::vector<PartShape>& parts, const PackedBytes& source) override {
    Vector vector;
    vector.size = vector_size(parts);
    vector.data = static_cast<float*>(take(source, static_cast<size_t>(vector.size) * 4));
    return vector;
  }

  PackedBytes packed(const Matrix& matrix) const override {
    return fetched(matrix.data, bytes_of(matrix));
  }
  PackedBytes packed(const Vector& vector) const override {
    return fetched(vector.data, static_cast<size_t>(vector.size) * 4);
  }
  int64_t packed_layout() const override { return kPackedLayout; }
  size_t bytes_used() const override { return bytes_used_; }

 private:
  static size_t bytes_of(const Matrix& matrix) {
    return static_cast<size_t>(weight_bytes(matrix.dtype, matrix.outputs, matrix.inputs));
  }

  void* bring(const void* host, size_t bytes) {
    void* memory = stream_.allocate(bytes);
    memory_.push_back(memory);
    bytes_used_ += bytes;
    stream_.upload(memory, host, bytes);
    stream_.wait();  // then the caller may reuse the host memory
    return memory;
  }

  void* take(const PackedBytes& source, size_t bytes) {
    if (source.bytes != bytes) {
      throw WeightError("packed bytes: found " + std::to_string(source.bytes) + ", expected " +
                        std::to_string(bytes));
    }
    void* memory = bring(source.data, bytes);
    if (source.mapped) drop_whole_pages(source.data, bytes);
    return memory;
  }

  // A copy on the host, kept as long as the store, so the bytes stay valid.
  PackedBytes fetched(const void* data, size_t bytes) const {
    std::vector<char>& copy = copies_[data];
    if (copy.empty()) {
      copy.resize(bytes);
      stream_.download(copy.data(), data, bytes);
    }
    return {copy.data(), bytes, false};
  }

  mutable Stream stream_;
  ThreadPool pool_;
  int device_;
  std::vector<void*> memory_;
  size_t bytes_used_ = 0;
  mutable std::map<const void*, std::vector<char>> copies_;
};

}  // namespace

std::unique_ptr<WeightStore> make_weight_store(int device, int threads) {
  return std::make_unique<CudaWeightStore>(device, threads);
}

}  // namespace onward::cuda
