#include "engine/sampled_generation.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace onward {

SampledGeneration::SampledGeneration(int64_t id, Request request, int64_t vocab_size,
                                     int64_t max_context, KvCache& cache)
    : Generation(id, std::move(request), vocab_size, max_context, cache) {
  for (int64_t index = 0; index < this->request().num_sequences; ++index) {
    lanes_.emplace_back();
    lanes_.back().sequence = new_sequence(index);
  }
  if (room() == 0 && !wants_prompt_logits()) end_all();  // there is nothing to compute
}

int64_t SampledGeneration::width() const {
  return std::count_if(lanes_.begin(), lanes_.end(),
                       [](const Lane& lane) { return lane.sequence != nullptr && !lane.dropped; });
}

std::vector<Sequence*> SampledGeneration::sequences() {
  std::vector<Sequence*> active;
  for (Lane& lane : lanes_) {
    if (lane.sequence && lane.events.empty()) active.push_back(lane.sequence.get());
    if (!begun_) break;  // the first sequence reads the prompt for all
  }
  return active;
}

std::vector<Sequence*> SampledGeneration::all_sequences() {
  std::vector<Sequence*> all;
  for (Lane& lane : lanes_) {
    if (lane.sequence) all.push_back(lane.sequence.get());
  }
  return all;
}

void SampledGeneration::keep_prefixes() {
  for (const Sequence* sequence : all_sequences()) keep(*sequence);
}

void SampledGeneration::choose(Sequence& sequence, float* logits, int64_t rows) {
  if (!begun_) return begin(logits);
  add_all(sequence, rows, [&](int64_t row) {
    return sequence.sampler.sample(logits + row * vocab_size_, sequence.tokens());
  });
}

template <typename ChoiceOf>
void SampledGeneration::add_all(Sequence& sequence, int64_t rows, const ChoiceOf& choice) {
  Lane& lane = lanes_[static_cast<size_t>(sequence.index())];
  // A guess is used only if the token chosen before it was guessed right.
  const std::vector<int32_t> guesses = std::exchange(sequence.guesses, {});
  lane.guessed += rows - 1;
  for (int64_t row = 0; row < rows; ++row) {
    add(lane, choice(row));
    const Event& latest = lane.events.back();
    const bool goes_on = row + 1 < rows && latest.finish == FinishReason::none &&
                         latest.token == guesses[static_cast<size_t>(row)];
    if (!goes_on) break;
    ++lane.events.back().accepted;
  }
}

void SampledGeneration::settle(Sequence& sequence) {
  const Lane& lane = lanes_[static_cast<size_t>(sequence.index())];
  if (!lane.events.empty() && !request().cache) {
    sequence.place.clear();  // without a cache, the next token computes all positions again
  } else if (!lane.events.empty()) {
    sequence.forget_wrong_guesses();
  }
  sequence.place.settle();
}

void SampledGeneration::begin(float* logits) {
  if (room() == 0) return end_all();
  begun_ = true;
  std::vector<float> copy(logits, logits + vocab_size_);
  for (Lane& lane : lanes_) {
    std::copy(copy.begin(), copy.end(), logits);
    if (lane.dropped) continue;
    Sequence& sequence = *lane.sequence;
    add(lane, sequence.sampler.sample(logits, sequence.tokens()));
  }
}

std::vector<RowSampling> SampledGeneration::choices_on_device(const Sequence& sequence,
                                                              int64_t rows) const {
  std::vector<RowSampling> choices;
  const auto ask = [&](const Sampler& sampler, const std::vector<int32_t>& tokens) {
    std::optional<RowSampling> choice = sampler.on_device(tokens);
    if (choice) choices.push_back(*std::move(choice));
    return choice.has_value();
  };
  if (calls_rules() || room() == 0 || !ask(sequence.sampler, sequence.tokens())) return {};
  if (!begun_) {
    if (wants_prompt_logits()) return {};
    choices.clear();
    for (const Lane& lane : lanes_) {
      if (!lane.dropped) ask(lane.sequence->sampler, lane.sequence->tokens());
    }
    return choices;
  }
  if (rows == 1) return choices;
  // A later row is used only if the guesses before it were right. So they are the tokens written by
  // then.
  Sampler sampler = sequence.sampler;
  std::vector<int32_t> tokens = sequence.tokens();
  for (int64_t row = 1; row < rows; ++row) {
    tokens.push_back(sequence.guesses[static_cast<size_t>(row - 1)]);
    sampler.remember(tokens.back());
    ask(sampler, tokens);
    choices.back().row = row;
  }
  return choices;
}

void SampledGeneration::take(Sequence& sequence, const RowChoice* chosen, int64_t rows) {
  if (begun_) {
    return add_all(sequence, rows, [&](int64_t row) { return sequence.sampler.take(chosen[row]); });
  }
  begun_ = true;
  for (Lane& lane : lanes_) {
    if (!lane.dropped) add(lane, lane.sequence->sampler.take(*chosen++));
  }
}

void SampledGeneration::add(Lane& lane, Choice choice) {
  Sequence& sequence = *lane.sequence;
  sequence.append(choice.token);
  Event next = event(sequence.index());
  next.token = choice.token;
  next.logprobs = std::move(choice.logprobs);
  next.guessed = std::exchange(lane.guessed, 0);
  if (is_stop_token(choice.token) || ends_by_rule(sequence.tokens())) {
    next.finish = FinishReason::stop;
  } else if (sequence.generated() >= room()) {
    next.finish = FinishReason::length;
  }
  lane.events.push_back(std::move(next));
}

// For requests that may write no token.
void SampledGeneration::end_all() {
  begun_ = true;
  for (Lane& lane : lanes_) {
    Event last = event(lane.sequence->index());
    last.finish = FinishReason::length;
    lane.events.push_back(std::move(last));
  }
}

void SampledGeneration::tell(std::vector<Event>& events) {
  if (begun_ && !shared_) {
    shared_ = true;
    const Sequence& reader = *lanes_.front().sequence;
    for (size_t i = 1; i < lanes_.size(); ++i) {
      Lane& lane = lanes_[i];
      if (lane.dropped) continue;
      lane.sequence->place = reader.place.fork();
      lane.sequence->begun = true;
      lane.sequence->last_turn = reader.last_turn;
    }
  }
  const size_t before = events.size();
  for (Lane& lane : lanes_) {
    const bool ended = !lane.events.empty() && lane.events.back().finish != FinishReason::none;
    if (!lane.dropped) {
      std::move(lane.events.begin(), lane.events.end(), std::back_inserter(events));
    }
    lane.events.clear();
    if (!lane.sequence || !(ended || (lane.dropped && shared_))) continue;
    keep(*lane.sequence);
    lane.sequence.reset();
  }
  if (finished() && events.size() > before) events.back().ends_request = true;
}

bool SampledGeneration::finished() const {
  return std::all_of(lanes_.begin(), lanes_.end(),
                     [](const Lane& lane) { return lane.dropped || !lane.sequence; });
}

void SampledGeneration::drop(int64_t sequence) {
  if (sequence < 0 || sequence >= static_cast<int64_t>(lanes_.size())) return;
  Lane& lane = lanes_[static_cast<size_t>(sequence)];
  lane.dropped = true;
  lane.events.clear();
  // The first sequence must read the prompt for the others.
  if (!shared_ || !lane.sequence) return;
  keep(*lane.sequence);
  lane.sequence.reset();
}

}  // namespace onward
