// Beam search: one sequence for each live beam. When every beam has its candidates, the search
// decides which sequences are forked and which are dropped; forks share their cache. Tokens that
// all possible results have in common are reported at once, the others at the end.
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
  // The tokens that the chain leaves as a sequence's next token, best first: at most `most`, or all
  // of them where beams draw.
  std::vector<BeamCandidate> left_by_chain(const Sequence& sequence, const float* scores,
                                           int64_t most) const;
  // The best of them for one beam; with sampling, the ones drawn for that beam.
  std::vector<BeamCandidate> candidates(const Sequence& sequence, std::vector<BeamCandidate> left,
                                        int64_t beam) const;
  void continue_beams(const std::vector<int64_t>& parents);
  void tell_settled(std::vector<Event>& events);
  void tell_results(std::vector<Event>& events);

  BeamSearch search_;
  std::vector<std::unique_ptr<Sequence>> sequences_;  // of the live beams, in their order
  std::vector<uint8_t> considered_;                   // not bool: beams are computed in parallel
  int64_t told_ = 0;                                  // reported tokens of the best one
  bool finished_ = false;
};

}  // namespace onward
