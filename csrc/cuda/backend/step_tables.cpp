#include "cuda/backend/step_tables.h"

#include <algorithm>
#include <cstring>

namespace onward::cuda {
namespace {

constexpr size_t kAlignment = 16;
// The number of positions of a grid is rounded up to a multiple of this, so that steps with similar
// contexts have equal shape.
constexpr int64_t kPositionsStep = 512;
constexpr size_t kFirstCapacity = size_t{64} << 10;

}  // namespace

StepTables::~StepTables() { stream_.release(device_); }

// Appends values to the upload; returns their offset in bytes.
template <typename T>
int64_t StepTables::append(const std::vector<T>& values) {
  const size_t begin = (bytes_.size() + kAlignment - 1) / kAlignment * kAlignment;
  bytes_.resize(begin + values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes_.data() + begin, values.data(), values.size() * sizeof(T));
  return static_cast<int64_t>(begin);
}

bool StepTables::fill(const CacheLayout& layout, const std::vector<SequenceSlice>& slices,
                      const std::vector<BlockEncoding>& encodings) {
  const int64_t groups = layout.num_groups();
  bytes_.clear();
  std::vector<SliceEntry> entries;
  std::vector<int32_t> slice_of_row;
  view_ = {};
  for (const SequenceSlice& slice : slices) {
    slice_of_row.resize(slice_of_row.size() + static_cast<size_t>(slice.tokens),
                        static_cast<int32_t>(entries.size()));
    entries.push_back({static_cast<int32_t>(slice.first_row), static_cast<int32_t>(slice.tokens),
                       slice.first_position});
    view_.most_tokens = std::max(view_.most_tokens, static_cast<int32_t>(slice.tokens));
    view_.most_positions = std::max(view_.most_positions, slice.first_position + slice.tokens);
  }
  view_.most_positions = round_up(view_.most_positions, kPositionsStep);
  // Tables with equal size in all steps of a shape come first, so that their addresses do not
  // change.
  const int64_t entries_at = append(entries), rows_at = append(slice_of_row);
  const int64_t tables_at =
      append(std::vector<void* const*>(slices.size() * static_cast<size_t>(groups) * 2));
  // The offset of each list of blocks; it becomes an address below.
  std::vector<int64_t> list_at;
  for (const SequenceSlice& slice : slices) {
    const int64_t blocks = layout.blocks_for(slice.first_position + slice.tokens);
    for (int64_t group = 0; group < groups; ++group) {
      for (void* const* list : {slice.blocks[group].exact, slice.blocks[group].coded}) {
        list_at.push_back(list == nullptr ? -1 : append(std::vector<void*>(list, list + blocks)));
      }
    }
  }
  std::vector<BlockEncoding> sorted = encodings;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.group < b.group; });
  first_encoding_.assign(static_cast<size_t>(groups) + 1, 0);
  for (const BlockEncoding& encoding : sorted) ++first_encoding_[encoding.group + 1];
  for (size_t group = 0; group < static_cast<size_t>(groups); ++group) {
    first_encoding_[group + 1] += first_encoding_[group];
  }
  const int64_t encodings_at = append(sorted);

  const bool moves = bytes_.size() > capacity_;
  if (moves) {
    stream_.release(device_);
    device_ = nullptr;
    capacity_ = std::max(kFirstCapacity, bytes_.size() + bytes_.size() / 2);
    device_ = static_cast<char*>(stream_.allocate(capacity_));
  }
  for (size_t i = 0; i < list_at.size(); ++i) {
    const char* list = list_at[i] < 0 ? nullptr : device_ + list_at[i];
    std::memcpy(bytes_.data() + tables_at + i * sizeof list, &list, sizeof list);
  }
  stream_.upload(device_, bytes_.data(), bytes_.size());
  view_.slices = reinterpret_cast<const SliceEntry*>(device_ + entries_at);
  view_.slice_of_row = reinterpret_cast<const int32_t*>(device_ + rows_at);
  view_.tables = reinterpret_cast<void* const* const*>(device_ + tables_at);
  view_.groups = static_cast<int32_t>(groups);
  view_.rows = static_cast<int32_t>(slice_of_row.size());
  view_.num_slices = static_cast<int32_t>(entries.size());
  encodings_ = reinterpret_cast<const BlockEncoding*>(device_ + encodings_at);
  return moves;
}

}  // namespace onward::cuda
