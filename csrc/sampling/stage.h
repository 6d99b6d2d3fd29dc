// The stages of the sampling chain, as rows of two tables. A stage is a row, with its options,
// beside its function: in processors.cpp if it changes the scores of the whole vocabulary, in
// filters.cpp if it works on the candidates of the draw. Nothing else names a stage.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/row_sampling.h"
#include "sampling/candidates.h"
#include "sampling/mirostat.h"
#include "sampling/sampling_options.h"

namespace onward {

// Where a stage stands in each order: stages run by ascending place.
struct Places {
  int hf;
  int vllm;
  int llama_cpp;
};

// What Stage::device_place may say besides a place.
inline constexpr int kHostOnly = 0;   // no device does this stage
inline constexpr int kAnywhere = -1;  // the device bans tokens, which commutes with every stage

template <typename Context, typename Scores>
struct Stage {
  static constexpr size_t kMostOptions = 4;

  // The first one gives the stage its name and turns it on: by any value but its default.
  Option<SamplingOptions> options[kMostOptions];
  Places places = {};
  // A device runs the stages that have a place here by ascending place, and in no other order.
  int device_place = kHostOnly;
  bool counts_tokens = false;  // reads ScoreContext::seen
  bool filters = false;        // mirostat takes the place of the filters
  void (*apply)(const Context& context, Scores scores) = nullptr;

  const char* name() const { return options[0].name; }
  bool is_on(const SamplingOptions& chosen) const { return !has_default(chosen, options[0]); }
  bool is_rule() const {  // of the caller
    return std::holds_alternative<std::shared_ptr<ScoreRule> SamplingOptions::*>(options[0].field);
  }
};

struct ScoreContext {
  const SamplingOptions& options;
  const std::vector<int32_t>& tokens;  // the prompt, then the output
  const std::vector<SeenToken>& seen;  // the distinct ones by id, where a stage counts tokens
  int64_t vocab_size;
  int64_t step;  // tokens of the output so far
};
// Changes scores (vocab_size) in place, for greedy choice and for sampling.
using ScoreStage = Stage<ScoreContext, float*>;
std::span<const ScoreStage> score_stages();

struct DrawContext {
  const SamplingOptions& options;
  uint64_t stream;
  uint64_t step;
  const Mirostat* mirostat;  // null: off
};
// Changes the candidates of a draw.
using DrawStage = Stage<DrawContext, Candidates&>;
// The first row is the temperature.
std::span<const DrawStage> draw_stages();

// Calls visit(option) for every option of the tables.
template <typename Visit>
void for_each_option(const Visit& visit) {
  const auto visit_stages = [&](const auto& stages) {
    for (const auto& stage : stages) {
      for (const auto& option : stage.options) {
        if (option.name != nullptr) visit(option);
      }
    }
  };
  visit_stages(draw_stages());
  visit_stages(score_stages());
  for (const auto& option : stageless_options()) visit(option);
}

}  // namespace onward
