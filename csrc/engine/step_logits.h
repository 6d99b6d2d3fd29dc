// What a step's logits become: tokens that the device chooses, of which ids alone come back, or
// rows on the host for whoever has to look at them. Knows nothing of requests.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/row_sampling.h"
#include "base/buffer.h"
#include "model/decoder.h"

namespace onward {

class StepLogits {
 public:
  StepLogits(const Decoder& decoder, int64_t vocab_size)
      : decoder_(decoder), vocab_size_(vocab_size) {}

  void clear();
  bool device_samples() const { return decoder_.samples(); }
  // Rows [row, row + rows) of the step are wanted. `choices`: what the device shall choose from
  // them, rows counted from `row`; empty: they have to come to the host. Returns the number of the
  // want.
  size_t want(int64_t row, int64_t rows, std::vector<RowSampling> choices);
  // After the step: answers all wants. Where the device has no answer, the host gets the rows too.
  void fetch();

  // Those of a want, one for each that was asked for; null where the host has to choose,
  const RowChoice* chosen(size_t want) const;
  // from logits (rows, vocab_size).
  float* rows(size_t want) { return logits_.data<float>() + wants_[want].first_logit; }

  int64_t choices_made() const { return choices_made_; }  // by the device, since ever
  int64_t rows_read() const { return rows_read_; }

 private:
  struct Want {
    int64_t row;
    int64_t rows;
    size_t first_choice;
    size_t choices;
    int64_t first_logit;
  };

  const Decoder& decoder_;
  int64_t vocab_size_;
  std::vector<Want> wants_;
  std::vector<RowSampling> asked_;
  std::vector<RowChoice> chosen_;
  AlignedBuffer logits_;  // (rows, vocab_size); only grows
  int64_t choices_made_ = 0;
  int64_t rows_read_ = 0;
};

}  // namespace onward
