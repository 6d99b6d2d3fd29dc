// What attention alone takes, over caches that are filled with numbers. For
// benchmarks/attention.py.
#include <pybind11/stl.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "backend/backend.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/half.h"
#include "cpu/cpu_backend.h"
#include "device_arrays.h"
#include "module.h"

namespace py = pybind11;

namespace {

using namespace onward;

// The blocks of one sequence, taken one by one as the engine does, and filled with numbers.
class FilledCache {
 public:
  // Holds exactly the blocks that the last `rows` of `positions` see, exact and coded.
  FilledCache(Backend& backend, CacheLayout cache_layout, int64_t positions, int64_t rows)
      : layout(std::move(cache_layout)), backend_(backend) {
    const int64_t blocks = layout.blocks_for(positions);
    const int64_t first = (positions - rows) / CacheLayout::kBlockTokens, last = blocks - 1;
    for (int64_t b = 0; b < blocks; ++b) {
      const bool is_coded = layout.coded_begin() <= b && b < layout.coded_end(last);
      const bool is_exact = b < layout.coded_begin() || b >= layout.coded_end(first);
      exact.push_back(is_exact ? take(layout.exact_block_bytes(0)) : nullptr);
      coded.push_back(is_coded ? take(layout.coded_block_bytes(0)) : nullptr);
      if (is_coded) fill_codes(static_cast<char*>(coded.back()));
      if (is_exact) {
        fill_numbers(static_cast<char*>(exact.back()), layout.exact_block_bytes(0));
      }
    }
  }
  ~FilledCache() {
    for (void* block : taken_) backend_.release(block);
  }
  FilledCache(const FilledCache&) = delete;
  FilledCache& operator=(const FilledCache&) = delete;

  CacheLayout layout;
  std::vector<void*> exact;
  std::vector<void*> coded;
  int64_t bytes = 0;

 private:
  void* take(int64_t size) {
    taken_.push_back(backend_.allocate(static_cast<size_t>(size)));
    bytes += size;
    return taken_.back();
  }
  uint32_t next() { return state_ = state_ * 1664525u + 1013904223u; }
  void fill_numbers(char* block, int64_t size) {
    for (int64_t i = 0; i < size; i += layout.value_bytes()) {
      const float x = static_cast<float>(static_cast<int32_t>(next())) * 0x1p-31f;
      const uint16_t half = layout.dtype == DType::f16 ? float_to_f16(x) : float_to_bf16(x);
      if (layout.dtype == DType::f32) {
        std::memcpy(block + i, &x, sizeof x);
      } else {
        std::memcpy(block + i, &half, sizeof half);
      }
    }
  }
  // Any bytes are valid codes. An exact side gets numbers. All scales are one small number.
  void fill_codes(char* block) {
    const int64_t size = layout.coded_block_bytes(0);
    for (int64_t i = 0; i + 4 <= size; i += 4) {
      const uint32_t word = next() >> 8 | next() << 16 | 0x01010101;
      std::memcpy(block + i, &word, sizeof word);
    }
    const uint16_t scale = float_to_f16(0x1p-8f);
    const CacheLayout::Group& group = layout.groups[0];
    for (int64_t layer = 0; layer < group.layers; ++layer) {
      for (int64_t head = 0; head < group.num_kv_heads; ++head) {
        if (layout.key_codec == KvCodec::exact) {
          fill_numbers(block + layout.key_codes_offset(layer, head), layout.key_codes_bytes(group));
        }
        if (layout.value_codec == KvCodec::exact) {
          fill_numbers(block + layout.value_codes_offset(layer, head),
                       layout.value_codes_bytes(group));
        }
        char* scales = block + layout.key_scales_offset(layer, head);
        const int64_t scale_bytes = layout.head_scales_bytes(group);
        for (int64_t i = 0; i < scale_bytes; i += 2) std::memcpy(scales + i, &scale, 2);
      }
    }
  }

  Backend& backend_;
  std::vector<void*> taken_;
  uint32_t state_ = 1;
};

// Returns, for each cache, the seconds of each round and the bytes of all its blocks.
std::vector<std::pair<std::vector<double>, int64_t>> attend_rate(
    const std::vector<std::tuple<std::string, std::string, std::string>>& caches, int64_t layers,
    int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t depth, int64_t rows, int threads,
    int64_t window_blocks, int rounds) {
  if (rows < 1 || depth < rows || heads % kv_heads != 0 || rounds < 1) {
    throw InvalidArgument("kernels: heads do not divide, or there are more rows than positions");
  }
  const py::gil_scoped_release release;
  const std::unique_ptr<Backend> backend = cpu::make_backend(threads);
  std::vector<std::unique_ptr<FilledCache>> filled;
  for (const auto& [dtype, key_codec, value_codec] : caches) {
    CacheLayout layout =
        cache_layout(layers, kv_heads, head_dim, parse_dtype(dtype), key_codec, value_codec);
    layout.window_blocks = window_blocks;
    filled.push_back(std::make_unique<FilledCache>(*backend, std::move(layout), depth, rows));
  }
  const int64_t stride = activation_stride(heads * head_dim);
  AlignedBuffer q(static_cast<size_t>(rows * stride) * 4),
      out(static_cast<size_t>(rows * stride) * 4);
  for (int64_t i = 0; i < rows * stride; ++i) {
    q.data<float>()[i] = static_cast<float>(i * 7919 % 1000) * 0.002f - 1.0f;
  }
  // Read before each measurement, as the weights of a model pass through the processor's caches.
  const std::vector<uint64_t> weights((int64_t{96} << 20) / sizeof(uint64_t), 1);
  uint64_t sink = 0;
  const std::vector<BlockEncoding> no_encodings;
  std::vector<std::pair<std::vector<double>, int64_t>> results(filled.size());
  for (int round = -1; round < rounds; ++round) {
    for (size_t i = 0; i < filled.size(); ++i) {
      FilledCache& cache = *filled[i];
      const GroupBlocks blocks = {cache.exact.data(), cache.coded.data()};
      const std::vector<SequenceSlice> slices = {{0, rows, depth - rows, &blocks}};
      for (const uint64_t word : weights) sink += word;
      AttendLayerArgs args;
      args.q = q.data<float>();
      args.q_stride = stride;
      args.out = out.data<float>();
      args.num_heads = heads;
      args.scale = 0.125f;
      backend->begin_step(cache.layout, slices, no_encodings);
      const auto begin = std::chrono::steady_clock::now();
      for (args.layer = 0; args.layer < layers; ++args.layer) {
        backend->attend(args);
      }
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
      results[i].second = cache.bytes;
      if (round >= 0) results[i].first.push_back(elapsed.count());
    }
  }
  if (sink == 1) throw Error("kernels: the weights were not read");
  return results;
}

}  // namespace

void bind_attend_rate(py::module_& m) {
  m.def("attend_rate", &attend_rate, py::arg("caches"), py::arg("layers"), py::arg("heads"),
        py::arg("kv_heads"), py::arg("head_dim"), py::arg("depth"), py::arg("rows"),
        py::arg("threads"), py::arg("window_blocks"), py::arg("rounds"),
        "Seconds of attention alone, in all layers, over caches (dtype, key codec, value codec) in "
        "turns. Returns, for each cache, the seconds of every round and the bytes of its blocks. "
        "The rows are the last ones of `depth` positions.");
}
