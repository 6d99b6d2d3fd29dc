// Beam search: one sequence for each live beam. A step ends when every beam has its candidates;
// then the sequences are forked and dropped as the search says, sharing their cache. Tells the
// tokens that all results still possible have in common as soon as they are known, and the rest at
// the end.
#pragma once

#include <memory>
#include <vector>

#include "engine/generation.h"
#include "sampling/beam_search.h"

namespace onward {

class BeamGeneration final : public Generation {
 public:
  BeamGeneration(int64_t id, Request request, int64_t vocab_size, int64_t max_context,
                 KvCache& cache);

  int64_t width() const override { return request().beams->num_beams; }
  std::vector<Sequence*> sequences() override;
  bool finished() const override { return finished_; }
  void drop(int64_t) override { finished_ = true; }
  void keep_prefixes() override;

 protected:
  std::vector<Sequence*> all_sequences() override;
  void choose(Sequence& sequence, float* logits, int64_t rows) override;
  void tell(std::vector<Event>& events) override;

 private:
  // What the chain leaves to follow a sequence, best first; all of it where it draws, else at most
  // so many.
  std::vector<BeamCandidate> left_by_chain(const Sequence& sequence, const float* scores,
                                           int64_t most) const;
  // The best of it for one beam; with sampling, as drawn for that beam.
  std::vector<BeamCandidate> candidates(const Sequence& sequence, std::vector<BeamCandidate> left,
                                        int64_t beam) const;
  void continue_beams(const std::vector<int64_t>& parents);
  void tell_settled(std::vector<Event>& events);
  void tell_results(std::vector<Event>& events);

  BeamSearch search_;
  std::vector<std::unique_ptr<Sequence>> sequences_;  // of the live beams, in their order
  std::vector<uint8_t> considered_;                   // not bool: beams are considered side by side
  int64_t told_ = 0;                                  // tokens of the best hypothesis
  bool finished_ = false;
};

}  // namespace onward
