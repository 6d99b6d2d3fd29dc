#include "cpu/weight_store.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/buffer.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "cpu/kernels.h"
#include "cpu/tasks/panels.h"
#include "formats/range_check.h"
#include "formats/sources.h"

namespace onward::cpu {
namespace {

// This many source bytes are packed before their pages are dropped.
constexpr int64_t kSlabBytes = int64_t{32} << 20;

// Releases the memory of rows [begin, end), as far as they exist.
void drop_rows(const TensorSource& source, int64_t begin, int64_t end) {
  if (!source.mapped || source.row_order != nullptr) return;
  begin = std::clamp<int64_t>(begin, 0, source.rows);
  end = std::clamp<int64_t>(end, 0, source.rows);
  drop_whole_pages(static_cast<const char*>(source.data) + begin * row_bytes(source),
                   static_cast<size_t>((end - begin) * row_bytes(source)));
}

// Source bytes that one task copies: enough that the cost of handing out the task is negligible.
constexpr int64_t kCopyBytes = int64_t{1} << 20;

constexpr uintptr_t kAlignment = 64;  // of a weight: the arena gives it, and kernels may rely on it

class CpuWeightStore final : public WeightStore {
 public:
  explicit CpuWeightStore(int threads) : pool_(threads) {}

  std::string device() const override { return "cpu"; }
  bool has(LayerFeature) const override { return true; }

  Matrix pack_matrix(const std::vector<TensorSource>& parts, DType dtype) override {
    const std::vector<OutputSource> outputs = outputs_of(parts);
    int64_t source_bytes = 0;
    for (const TensorSource& part : parts) source_bytes += part.rows * row_bytes(part);
    Matrix matrix = planned_matrix(shapes_of(parts), dtype);
    matrix.data = arena_.allocate(static_cast<size_t>(matrix.bytes()));
    RangeCheck range(parts, outputs, matrix);
    const int64_t panels = (matrix.outputs + kPanelColumns - 1) / kPanelColumns;
    const int64_t slabs = std::min(panels, source_bytes / kSlabBytes + 1);
    for (int64_t slab = 0; slab < slabs; ++slab) {
      const int64_t begin = panels * slab / slabs, end = panels * (slab + 1) / slabs;
      pool_.run(end - begin, [&](int64_t task) {
        const int64_t first = (begin + task) * kPanelColumns;
        const int64_t width = panel_width(matrix, first);
        range.see(first, width);
        pack_panel(matrix, first, width, outputs.data() + first);
      });
      for (size_t i = 0; i < parts.size(); ++i) {
        drop_rows(parts[i], begin * kPanelColumns - matrix.offsets[i],
                  end * kPanelColumns - matrix.offsets[i]);
      }
    }
    range.finish();
    return matrix;
  }

  Vector pack_vector(const std::vector<TensorSource>& parts) override {
    Vector vector;
    vector.size = vector_size(shapes_of(parts));
    vector.data = static_cast<float*>(arena_.allocate(static_cast<size_t>(vector.size) * 4));
    read_vector(parts, vector.data);
    return vector;
  }

  Matrix take_matrix(const std::vector<PartShape>& parts, DType dtype,
                     const PackedBytes& source) override {
    Matrix matrix = planned_matrix(parts, dtype);
    matrix.data = take(source, matrix.bytes());
    return matrix;
  }

  Vector take_vector(const std::vector<PartShape>& parts, const PackedBytes& source) override {
    Vector vector;
    vector.size = vector_size(parts);
    vector.data = static_cast<float*>(take(source, vector.size * 4));
    return vector;
  }

  PackedBytes packed(const Matrix& matrix) const override {
    return {matrix.data, static_cast<size_t>(matrix.bytes()), false};
  }

  PackedBytes packed(const Vector& vector) const override {
    return {vector.data, static_cast<size_t>(vector.size) * 4, false};
  }

  int64_t packed_layout() const override { return kPackedLayout; }

  size_t bytes_used() const override { return arena_.bytes_used() + kept_bytes_; }

 private:
  // Keeps bytes in place if they have an owner and the alignment that kernels need. Nothing writes
  // a packed weight, so its memory may be read-only.
  void* take(const PackedBytes& source, int64_t bytes) {
    if (source.bytes != static_cast<size_t>(bytes)) {
      throw WeightError("packed bytes: found " + std::to_string(source.bytes) + ", expected " +
                        std::to_string(bytes));
    }
    if (source.owner && reinterpret_cast<uintptr_t>(source.data) % kAlignment == 0) {
      if (owners_.empty() || owners_.back() != source.owner) owners_.push_back(source.owner);
      kept_bytes_ += source.bytes;
      return const_cast<void*>(source.data);
    }
    // Otherwise copies from the file's mapping, whose pages have only 4 KiB (base/buffer.h, Arena).
    char* out = static_cast<char*>(arena_.allocate(source.bytes));
    const char* in = static_cast<const char*>(source.data);
    for (int64_t slab = 0; slab < bytes; slab += kSlabBytes) {
      const int64_t end = std::min(slab + kSlabBytes, bytes);
      pool_.run((end - slab + kCopyBytes - 1) / kCopyBytes, [&](int64_t task) {
        const int64_t begin = slab + task * kCopyBytes;
        std::memcpy(out + begin, in + begin,
                    static_cast<size_t>(std::min(kCopyBytes, end - begin)));
      });
      if (source.mapped) drop_whole_pages(in + slab, static_cast<size_t>(end - slab));
    }
    return out;
  }

  ThreadPool pool_;
  Arena arena_;
  std::vector<std::shared_ptr<const void>> owners_;  // of the bytes that are kept in place
  size_t kept_bytes_ = 0;
};

}  // namespace

std::unique_ptr<WeightStore> make_weight_store(int threads) {
  return std::make_unique<CpuWeightStore>(threads);
}

}  // namespace onward::cpu
