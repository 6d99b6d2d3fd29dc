// Sampling and greedy choice: one or several sequences that continue the same prompt. The prompt is
// read once, and the sequences differ from their first token on.
#pragma once

#include <memory>
#include <vector>

#include "engine/generation.h"

namespace onward {

class SampledGeneration final : public Generation {
 public:
  SampledGeneration(int64_t id, Request request, int64_t vocab_size, int64_t max_context,
                    KvCache& cache);

  int64_t width() const override;
  std::vector<Sequence*> sequences() override;
  bool finished() const override;
  void drop(int64_t sequence) override;
  void settle(Sequence& sequence) override;
  void keep_prefixes() override;
  std::vector<RowSampling> choices_on_device(const Sequence& sequence, int64_t rows) const override;
  using Generation::take;
  void take(Sequence& sequence, const RowChoice* chosen, int64_t rows) override;

 protected:
  std::vector<Sequence*> all_sequences() override;
  void choose(Sequence& sequence, float* logits, int64_t rows) override;
  void tell(std::vector<Event>& events) override;

 private:
  struct Lane {
    std::unique_ptr<Sequence> sequence;  // null once it has ended
    std::vector<Event> events;           // reported when the step ends
    int64_t guessed = 0;                 // since the last event
    bool dropped = false;                // its events are not wanted any more
  };
  void begin(float* logits);
  // The choices of `rows` rows, up to the first wrong guess: choice(row).
  template <typename ChoiceOf>
  void add_all(Sequence& sequence, int64_t rows, const ChoiceOf& choice);
  void add(Lane& lane, Choice choice);
  void end_all();

  std::vector<Lane> lanes_;
  bool begun_ = false;   // every lane has its first token or has ended
  bool shared_ = false;  // every lane has the prompt's place in the cache
};

}  // namespace onward
