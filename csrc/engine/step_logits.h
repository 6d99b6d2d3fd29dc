// The logits of a step: the device chooses tokens and only their ids come back, or rows of logits
// are copied to the host.
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
  // Asks for rows [row, row + rows) of the step. `choices`: the choices that the device makes from
  // them, with rows counted from `row`; if empty, the rows are copied to the host. Returns the
  // number of this request for `chosen` and `rows`.
  size_t want(int64_t row, int64_t rows, std::vector<RowSampling> choices);
  // After the step: fetches everything. Where the device cannot choose, it copies the rows too.
  void fetch();

  // One choice for each that was asked for; null where the host must choose from the rows.
  const RowChoice* chosen(size_t want) const;
  // Logits (rows, vocab_size).
  float* rows(size_t want) { return logits_.data<float>() + wants_[want].first_logit; }

  int64_t choices_made() const { return choices_made_; }  // by the device so far
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
