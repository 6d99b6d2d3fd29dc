// One request on its way through the engine: the sequences it has in the cache, what becomes of
// their logits, and what its caller hears. Each kind of decoding is one class.
#pragma once

#include <exception>
#include <map>
#include <memory>
#include <vector>

#include "engine/request.h"
#include "engine/sequence.h"

namespace onward {

class Generation {
 public:
  Generation(int64_t id, Request request, int64_t vocab_size, int64_t max_context, KvCache& cache);
  virtual ~Generation() = default;
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  int64_t id() const { return id_; }
  const Request& request() const { return request_; }
  // Tokens that a sequence may still write at its start.
  int64_t room() const { return room_; }

  // Whether sequences begin with what is kept of other ones, and are kept themselves.
  bool shares_prefixes() const { return request_.cache; }
  // Of which sequence a prefix may be taken over: not where every token's logits are wanted.
  bool may_skip(const Sequence& sequence) const {
    return shares_prefixes() && (sequence.generated() > 0 || !wants_prompt_logits());
  }
  // A sequence has begun with so many tokens that it need not compute.
  void begin_with(const Sequence& sequence, int64_t tokens);
  // Keeps what the step has computed of a sequence where it is worth it; `first`: of its share.
  void keep_prompt(Sequence& sequence, int64_t first);
  // Gives up the places of all sequences; they are computed again later.
  void lose_places();
  // After the step's logits were taken, one sequence after another: gives back what of its place no
  // token from here on needs. `choose`, which runs beside others, leaves the cache alone.
  virtual void settle(Sequence& sequence) { sequence.place.settle(); }
  // Keeps what the sequences have computed so far: nobody goes on with them.
  virtual void keep_prefixes() = 0;

  // Sequences at most, from now on.
  virtual int64_t width() const = 0;
  // Those that have something to compute.
  virtual std::vector<Sequence*> sequences() = 0;
  // Logits are wanted of every token of the prompt, not of the last one alone.
  bool wants_prompt_logits() const { return request_.prompt_logprobs >= 0; }

  // Takes logits (rows, vocab_size) of a sequence's tokens from `first_position` on, which it may
  // change. The last row is that of the last token, guesses included, unless the prompt goes on.
  // Called for several sequences at once where no caller's rule is involved.
  void take(Sequence& sequence, int64_t first_position, float* logits, int64_t rows);
  // What a device can choose from so many rows, in place of `take`; empty where it cannot.
  virtual std::vector<RowSampling> choices_on_device(const Sequence& sequence, int64_t rows) const;
  // Takes these choices, each of which has a token.
  virtual void take(Sequence& sequence, const RowChoice* chosen, int64_t rows);
  bool calls_rules() const;

  // Ends the request with an error; what it has written is lost.
  void fail(std::exception_ptr failure) { failure_ = std::move(failure); }
  bool failed() const { return failure_ != nullptr; }
  // Says what has happened since the last report, as of `time`. Nothing more follows once it has
  // finished.
  void report(std::vector<Event>& events, double time);
  virtual bool finished() const = 0;

  // Gives up one sequence; the others go on.
  virtual void drop(int64_t sequence) = 0;

  int64_t arrival = 0;    // the step before which it was submitted
  bool admitted = false;  // has a place among the sequences

 protected:
  std::unique_ptr<Sequence> new_sequence(int64_t index) const;
  void keep(const Sequence& sequence);
  // All that have a place or may get one.
  virtual std::vector<Sequence*> all_sequences() = 0;
  bool ends_by_rule(const std::vector<int32_t>& tokens) const;
  bool is_stop_token(int32_t token) const;
  Event event(int64_t sequence) const;

  // The logits of the sequence's last token, and of its guesses after it.
  virtual void choose(Sequence& sequence, float* logits, int64_t rows) = 0;
  virtual void tell(std::vector<Event>& events) = 0;

  const int64_t vocab_size_;

 private:
  void tell_progress(std::vector<Event>& events);
  // Keeps back the events from `first` on that end nothing; the others take along what was kept.
  void gather(std::vector<Event>& events, size_t first, double time);

  int64_t id_;
  Request request_;
  int64_t room_;
  std::shared_ptr<const SamplingOptions> sampling_;
  KvCache& cache_;
  std::vector<TokenLogprobs> prompt_logprobs_;
  int64_t prompt_rows_ = 0;     // tokens of the prompt whose logits have been seen
  int64_t cached_tokens_ = -1;  // to be told; -1: not yet known, or told
  int64_t told_computed_ = 0;   // of the prompt
  std::map<int64_t, std::unique_ptr<Gathered>> gathered_;  // by sequence
  std::exception_ptr failure_;
};

}  // namespace onward
