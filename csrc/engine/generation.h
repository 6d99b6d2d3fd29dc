// One request in the engine: its sequences in the cache, how their logits are used, and the events
// for its caller. Each kind of decoding is one class.
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
  // The most tokens that a sequence may write.
  int64_t room() const { return room_; }

  // Whether its sequences may reuse kept prefixes, and are kept as prefixes themselves.
  bool shares_prefixes() const { return request_.cache; }
  // Whether a sequence may reuse a prefix: not while the logits of every prompt token are wanted.
  bool may_skip(const Sequence& sequence) const {
    return shares_prefixes() && (sequence.generated() > 0 || !wants_prompt_logits());
  }
  // A sequence has begun with `tokens` tokens that it need not compute.
  void begin_with(const Sequence& sequence, int64_t tokens);
  // Keeps the prefixes worth keeping that the step has computed. `first`: the first position of the
  // sequence's share.
  void keep_prompt(Sequence& sequence, int64_t first);
  // Frees the places of all sequences; they are computed again later.
  void lose_places();
  // After the logits of a step, for one sequence at a time: frees the parts of its place that no
  // later token needs. `choose` runs in parallel and must not touch the cache.
  virtual void settle(Sequence& sequence) { sequence.place.settle(); }
  // Keeps everything that the sequences have computed, because they end here.
  virtual void keep_prefixes() = 0;

  // The most sequences that it has from now on.
  virtual int64_t width() const = 0;
  // The sequences that have tokens to compute.
  virtual std::vector<Sequence*> sequences() = 0;
  // Whether the logits of every prompt token are wanted, not only of the last one.
  bool wants_prompt_logits() const { return request_.prompt_logprobs >= 0; }

  // Takes logits (rows, vocab_size) of a sequence's tokens from `first_position` on, and may change
  // them. The last row belongs to the last token, guesses included, unless the prompt goes on.
  // Called for several sequences in parallel where no rule of the caller is involved.
  void take(Sequence& sequence, int64_t first_position, float* logits, int64_t rows);
  // The choices that a device can make from `rows` rows, in place of `take`; empty for none.
  virtual std::vector<RowSampling> choices_on_device(const Sequence& sequence, int64_t rows) const;
  // Takes the device's choices; each has a token.
  virtual void take(Sequence& sequence, const RowChoice* chosen, int64_t rows);
  bool calls_rules() const;

  // Ends the request with an error; its unreported tokens are lost.
  void fail(std::exception_ptr failure) { failure_ = std::move(failure); }
  bool failed() const { return failure_ != nullptr; }
  // Appends the events since the last report, with this time. None follows once it has finished.
  void report(std::vector<Event>& events, double time);
  virtual bool finished() const = 0;

  // Cancels one sequence; the others go on.
  virtual void drop(int64_t sequence) = 0;

  int64_t arrival = 0;    // the step before which it was submitted
  bool admitted = false;  // its sequences may have places in the cache

 protected:
  std::unique_ptr<Sequence> new_sequence(int64_t index) const;
  void keep(const Sequence& sequence);
  // All sequences that have a place or may get one.
  virtual std::vector<Sequence*> all_sequences() = 0;
  bool ends_by_rule(const std::vector<int32_t>& tokens) const;
  bool is_stop_token(int32_t token) const;
  Event event(int64_t sequence) const;

  // Chooses from the logits of the sequence's last token and of its guesses.
  virtual void choose(Sequence& sequence, float* logits, int64_t rows) = 0;
  virtual void tell(std::vector<Event>& events) = 0;

  const int64_t vocab_size_;

 private:
  void tell_progress(std::vector<Event>& events);
  // Removes the events from `first` on that end no sequence, and adds their tokens to the event
  // that does.
  void gather(std::vector<Event>& events, size_t first, double time);

  int64_t id_;
  Request request_;
  int64_t room_;
  std::shared_ptr<const SamplingOptions> sampling_;
  KvCache& cache_;
  std::vector<TokenLogprobs> prompt_logprobs_;
  int64_t prompt_rows_ = 0;     // tokens of the prompt whose logits have been seen
  int64_t cached_tokens_ = -1;  // not yet reported; -1: unknown, or reported
  int64_t told_computed_ = 0;   // tokens of the prompt, as last reported
  std::map<int64_t, std::unique_ptr<Gathered>> gathered_;  // by sequence
  std::exception_ptr failure_;
};

}  // namespace onward
