#include "cuda/backend/row_sampler.h"

#include <algorithm>
#include <cstring>

#include "cuda/kernels/verbs.h"

namespace onward::cuda {
namespace {

constexpr size_t kAlignment = 16;
// Rows of one launch, about one for each multiprocessor of a large device. The scores take as much
// memory as the logits of this number of rows.
constexpr int64_t kLaunchRows = 128;

}  // namespace

RowSampler::~RowSampler() {
  for (const Buffer& buffer : {options_, scores_, choices_}) stream_.release(buffer.memory);
}

char* RowSampler::grown(Buffer& buffer, size_t bytes) {
  if (bytes <= buffer.bytes) return buffer.memory;
  stream_.release(buffer.memory);
  buffer = {};
  buffer.memory = static_cast<char*>(stream_.allocate(bytes));
  buffer.bytes = bytes;
  return buffer.memory;
}

// Appends values to the upload; returns their offset in bytes.
template <typename T>
size_t RowSampler::append(const T* values, size_t count) {
  const size_t begin = (bytes_.size() + kAlignment - 1) / kAlignment * kAlignment;
  bytes_.resize(begin + count * sizeof(T));
  if (count > 0) std::memcpy(bytes_.data() + begin, values, count * sizeof(T));
  return begin;
}

std::vector<RowChoice> RowSampler::sample(const float* logits, int64_t stride, int64_t vocab_size,
                                          const std::vector<RowSampling>& rows) {
  struct Lists {
    size_t biases, seen, banned;
  };
  std::vector<SampledRow> sampled(rows.size());
  std::vector<Lists> lists;
  bytes_.clear();
  append(sampled.data(), sampled.size());  // reserves the place; filled below
  for (const RowSampling& row : rows) {
    lists.push_back({append(row.biases.data(), row.biases.size()),
                     append(row.seen.data(), row.seen.size()),
                     append(row.banned.data(), row.banned.size())});
  }
  const char* device = grown(options_, bytes_.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    sampled[i].options = rows[i];
    sampled[i].biases = reinterpret_cast<const TokenBias*>(device + lists[i].biases);
    sampled[i].seen = reinterpret_cast<const SeenToken*>(device + lists[i].seen);
    sampled[i].banned = reinterpret_cast<const int32_t*>(device + lists[i].banned);
    sampled[i].num_biases = static_cast<int32_t>(rows[i].biases.size());
    sampled[i].num_seen = static_cast<int32_t>(rows[i].seen.size());
    sampled[i].num_banned = static_cast<int32_t>(rows[i].banned.size());
  }
  std::memcpy(bytes_.data(), sampled.data(), sampled.size() * sizeof(SampledRow));
  stream_.upload(options_.memory, bytes_.data(), bytes_.size());

  const auto count = static_cast<int64_t>(rows.size());
  const auto row_bytes = static_cast<size_t>(vocab_size) * sizeof(float);
  auto* scores = reinterpret_cast<float*>(
      grown(scores_, static_cast<size_t>(std::min(count, kLaunchRows)) * row_bytes));
  auto* choices = reinterpret_cast<RowChoice*>(grown(choices_, rows.size() * sizeof(RowChoice)));
  const auto* device_rows = reinterpret_cast<const SampledRow*>(device);
  for (int64_t first = 0; first < count; first += kLaunchRows) {
    sample_rows(stream_, logits, stride, vocab_size, device_rows + first,
                std::min(kLaunchRows, count - first), scores, choices + first);
  }
  std::vector<RowChoice> found(rows.size());
  stream_.download(found.data(), choices, found.size() * sizeof(RowChoice));
  return found;
}

}  // namespace onward::cuda
