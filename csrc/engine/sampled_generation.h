// Sampling and greedy choice: one sequence or several that continue the same prompt, which is read
// once; each goes its own way from its first token on.
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
    std::vector<Event> events;           // to be told when the step ends
    int64_t guessed = 0;                 // since the last event
    bool dropped = false;                // nobody listens any more
  };
  void begin(float* logits);
  // The choices of so many rows, as long as the guess before each stands: choice(row).
  template <typename ChoiceOf>
  void add_all(Sequence& sequence, int64_t rows, const ChoiceOf& choice);
  void add(Lane& lane, Choice choice);
  void end_all();

  std::vector<Lane> lanes_;
  bool begun_ = false;   // every lane has its first token, or its end
  bool shared_ = false;  // and the prompt's place in the cache
};

}  // namespace onward
