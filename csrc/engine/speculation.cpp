#include "engine/speculation.h"

#include <algorithm>
#include <utility>

namespace onward {

std::vector<int32_t> look_up(const std::vector<int32_t>& tokens, int64_t ngram, int64_t count) {
  const int64_t size = static_cast<int64_t>(tokens.size());
  int64_t longest = 0, after = 0;  // length and end of the best match
  for (int64_t end = size - 1; end > 0 && longest < ngram; --end) {
    int64_t length = 0;
    while (length < std::min(ngram, end) && tokens[static_cast<size_t>(end - 1 - length)] ==
                                                tokens[static_cast<size_t>(size - 1 - length)]) {
      ++length;
    }
    if (length > longest) {
      longest = length;
      after = end;
    }
  }
  std::vector<int32_t> guesses;
  for (int64_t i = 0; longest > 0 && i < count; ++i) {
    guesses.push_back(tokens[static_cast<size_t>(after + i % (size - after))]);
  }
  return guesses;
}

struct DraftModel::Writer {
  Sequence* sequence;
  int64_t wanted;
  Sampler sampler;
  std::vector<int32_t> tokens;  // of the sequence, then the guesses
  std::vector<int32_t> guesses;
  bool failed = false;

  SequenceBlocks& place() { return *sequence->draft_place; }
  std::vector<RowSampling> choices_on_device(const StepLogits& logits) const {
    if (!logits.device_samples()) return {};
    std::optional<RowSampling> choice = sampler.on_device(tokens);
    if (!choice) return {};
    return {*std::move(choice)};
  }
  bool writes() const { return !failed && static_cast<int64_t>(guesses.size()) < wanted; }
};

DraftModel::DraftModel(std::shared_ptr<const Model> model, Backend& backend, int64_t step_tokens,
                       CacheBudget& budget)
    : model_(std::move(model)),
      backend_(backend),
      decoder_(model_, backend),
      cache_(backend, decoder_.cache_layout(), budget, {false, 0}),
      logits_(decoder_, model_->spec.vocab_size),
      step_tokens_(step_tokens) {}

void DraftModel::catch_up(Writer& writer, const Decoder::Poll& poll) {
  SequenceBlocks& place = writer.place();
  const int64_t end = writer.sequence->size() - 1;
  place.settle();
  while (place.computed() < end) {
    const int64_t first = place.computed();
    const int64_t chunk = std::min(step_tokens_, end - first);
    writer.failed = !cache_.prepare(place, first + chunk);
    if (writer.failed) return;
    StepBatch batch;
    batch.token_ids.assign(writer.tokens.begin() + first, writer.tokens.begin() + first + chunk);
    batch.slices.push_back({0, chunk, first, place.blocks()});
    decoder_.forward(batch, poll);
    place.advance(first + chunk);
    place.settle();
  }
}

void DraftModel::guess(const std::vector<Wish>& wishes, const Decoder::Poll& poll) {
  std::vector<Writer> writers;
  for (const Wish& wish : wishes) {
    Sequence& sequence = *wish.sequence;
    if (!sequence.draft_place)
      sequence.draft_place = std::make_unique<SequenceBlocks>(cache_.empty_place());
    sequence.forget_wrong_guesses();  // left by an abandoned step
    const int64_t room = model_->spec.max_context - sequence.size();
    if (std::min(wish.guesses, room) <= 0) continue;
    writers.push_back({&sequence,
                       std::min(wish.guesses, room),
                       sequence.sampler.without_rules(),
                       sequence.tokens(),
                       {}});
    catch_up(writers.back(), poll);
  }
  while (true) {
    StepBatch batch;
    logits_.clear();
    std::vector<Writer*> writing;
    for (Writer& writer : writers) {
      if (!writer.writes()) continue;
      SequenceBlocks& place = writer.place();
      writer.failed = !cache_.prepare(place, place.computed() + 1);
      if (writer.failed) continue;
      const int64_t row = static_cast<int64_t>(batch.token_ids.size());
      batch.token_ids.push_back(writer.tokens.back());
      batch.slices.push_back({row, 1, place.computed(), place.blocks()});
      batch.logits_rows.push_back(row);
      logits_.want(row, 1, writer.choices_on_device(logits_));
      writing.push_back(&writer);
    }
    if (writing.empty()) break;
    decoder_.forward(batch, poll);
    logits_.fetch();
    backend_.run_on_host(static_cast<int64_t>(writing.size()), [&](int64_t i) {
      Writer& writer = *writing[static_cast<size_t>(i)];
      writer.place().advance(writer.place().computed() + 1);
      try {
        const auto want = static_cast<size_t>(i);
        const RowChoice* chosen = logits_.chosen(want);
        const Choice choice = chosen ? writer.sampler.take(*chosen)
                                     : writer.sampler.sample(logits_.rows(want), writer.tokens);
        writer.tokens.push_back(choice.token);
        writer.guesses.push_back(choice.token);
      } catch (const std::exception&) {
        writer.failed = true;  // having no guess is always correct
      }
    });
  }
  for (Writer& writer : writers) writer.sequence->guesses = std::move(writer.guesses);
}

}  // namespace onward
