#include "engine/generation.h"

#include <algorithm>
#include <utility>

#include "sampling/best_tokens.h"
#include "sampling/log_probability.h"

namespace onward {

Generation::Generation(int64_t id, Request request, int64_t vocab_size, int64_t max_context,
                       KvCache& cache)
    : vocab_size_(vocab_size),
      id_(id),
      request_(std::move(request)),
      room_(std::min(request_.max_new_tokens,
                     max_context - static_cast<int64_t>(request_.prompt.size()))),
      sampling_(std::make_shared<const SamplingOptions>(request_.sampling)),
      cache_(cache) {}

std::unique_ptr<Sequence> Generation::new_sequence(int64_t index) const {
  Sampler sampler(sampling_, vocab_size_, request_.prompt, static_cast<uint64_t>(index));
  auto sequence = std::make_unique<Sequence>(index, request_.prompt, std::move(sampler), cache_);
  // Only whole blocks: the sequence still writes to the last one.
  constexpr int64_t kTokens = CacheLayout::kBlockTokens;
  sequence->keep_at.push_back(sequence->size() / kTokens * kTokens);
  return sequence;
}

void Generation::begin_with(const Sequence& sequence, int64_t tokens) {
  if (sequence.generated() == 0 && cached_tokens_ < 0) cached_tokens_ = tokens;
}

void Generation::keep_prompt(Sequence& sequence, int64_t first) {
  if (!shares_prefixes()) return;
  const int64_t computed = sequence.place.computed();
  for (const int64_t count : sequence.keep_at) {
    if (count > first && count <= computed)
      cache_.remember(sequence.tokens(), sequence.place, count);
  }
}

void Generation::keep(const Sequence& sequence) {
  if (!shares_prefixes() || failed()) return;
  cache_.remember(sequence.tokens(), sequence.place, sequence.place.computed());
}

void Generation::lose_places() {
  for (Sequence* sequence : all_sequences()) sequence->lose_place();
}

bool Generation::calls_rules() const {
  const SamplingOptions& sampling = request_.sampling;
  return sampling.logits_processor || sampling.grammar || !request_.end_rules.empty();
}

void Generation::take(Sequence& sequence, int64_t first_position, float* logits, int64_t rows) {
  const std::vector<int32_t>& prompt = request_.prompt;
  const int64_t last = static_cast<int64_t>(prompt.size()) - 1;
  int64_t row = 0;
  for (; row < rows && first_position + row < last; ++row) {
    if (first_position + row < prompt_rows_) continue;  // computed again after its place was lost
    float* scores = logits + row * vocab_size_;
    require_finite(scores, vocab_size_);
    log_softmax(scores, vocab_size_);
    ++prompt_rows_;
    const int32_t token = prompt[static_cast<size_t>(first_position + row + 1)];
    TokenLogprobs found{token, scores[token], scores[token], {}, {}};
    found.raw_top = best_tokens(scores, vocab_size_, request_.prompt_logprobs);
    prompt_logprobs_.push_back(std::move(found));
  }
  if (row < rows) choose(sequence, logits + row * vocab_size_, rows - row);
}

std::vector<RowSampling> Generation::choices_on_device(const Sequence&, int64_t) const {
  return {};
}

void Generation::take(Sequence&, const RowChoice*, int64_t) {}  // it asked for no choices

void Generation::report(std::vector<Event>& events, double time) {
  if (failure_) {
    Event failed = event(0);
    failed.finish = FinishReason::error;
    failed.ends_request = true;
    failed.failure = failure_;
    events.push_back(std::move(failed));
    return;
  }
  if (request_.progress) tell_progress(events);
  const size_t before = events.size();
  tell(events);
  if (request_.gather) gather(events, before, time);
  if (events.size() == before) return;
  events[before].prompt_logprobs = std::exchange(prompt_logprobs_, {});
  events[before].cached_tokens = std::exchange(cached_tokens_, -1);
}

void Generation::gather(std::vector<Event>& events, size_t first, double time) {
  size_t told = first;
  for (size_t i = first; i < events.size(); ++i) {
    Event& event = events[i];
    std::unique_ptr<Gathered>& so_far = gathered_[event.sequence];
    if (event.finish != FinishReason::none || event.ends_request) {
      if (so_far) {
        event.guessed += so_far->guessed;
        event.accepted += so_far->accepted;
      }
      event.gathered = std::move(so_far);
      if (told < i) events[told] = std::move(event);
      ++told;
      continue;
    }
    if (!so_far) {
      so_far = std::make_unique<Gathered>();
      so_far->first_time = time;
    }
    so_far->tokens.push_back(event.token);
    if (event.logprobs) so_far->logprobs.push_back(std::move(*event.logprobs));
    so_far->guessed += event.guessed;
    so_far->accepted += event.accepted;
  }
  events.resize(told);
}

void Generation::tell_progress(std::vector<Event>& events) {
  const auto size = static_cast<int64_t>(request_.prompt.size());
  for (const Sequence* sequence : all_sequences()) {
    const int64_t computed = std::min(sequence->place.computed(), size);
    if (computed <= told_computed_) continue;
    told_computed_ = computed;
    Event read = event(0);
    read.prompt_computed = computed;
    events.push_back(std::move(read));
  }
}

bool Generation::ends_by_rule(const std::vector<int32_t>& tokens) const {
  return std::any_of(request_.end_rules.begin(), request_.end_rules.end(),
                     [&](const auto& rule) { return rule->ends(tokens); });
}

bool Generation::is_stop_token(int32_t token) const {
  const std::vector<int32_t>& stops = request_.sampling.stop_token_ids;
  return std::find(stops.begin(), stops.end(), token) != stops.end();
}

Event Generation::event(int64_t sequence) const {
  Event event;
  event.request = id_;
  event.sequence = sequence;
  return event;
}

}  // namespace onward
