#include "engine/step_logits.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace onward {

void StepLogits::clear() {
  wants_.clear();
  asked_.clear();
}

size_t StepLogits::want(int64_t row, int64_t rows, std::vector<RowSampling> choices) {
  wants_.push_back({row, rows, asked_.size(), choices.size(), 0});
  for (RowSampling& choice : choices) {
    choice.row += row;
    asked_.push_back(std::move(choice));
  }
  return wants_.size() - 1;
}

void StepLogits::fetch() {
  chosen_.clear();
  if (!asked_.empty()) chosen_ = decoder_.sample(asked_);
  int64_t read = 0;
  for (Want& want : wants_) {
    const auto first = chosen_.begin() + static_cast<std::ptrdiff_t>(want.first_choice);
    const auto last = first + static_cast<std::ptrdiff_t>(want.choices);
    if (std::any_of(first, last, [](const RowChoice& choice) { return choice.token < 0; })) {
      want.choices = 0;
    }
    choices_made_ += static_cast<int64_t>(want.choices);
    if (want.choices > 0) continue;
    want.first_logit = read * vocab_size_;
    read += want.rows;
  }
  rows_read_ += read;
  const size_t bytes = static_cast<size_t>(read * vocab_size_) * sizeof(float);
  if (logits_.bytes() < bytes) logits_ = AlignedBuffer(std::max(bytes, 2 * logits_.bytes()));
  for (const Want& want : wants_) {
    if (want.choices > 0) continue;
    decoder_.read_logits(want.row, want.rows, logits_.data<float>() + want.first_logit);
  }
}

const RowChoice* StepLogits::chosen(size_t want) const {
  const Want& found = wants_[want];
  return found.choices > 0 ? chosen_.data() + found.first_choice : nullptr;
}

}  // namespace onward
