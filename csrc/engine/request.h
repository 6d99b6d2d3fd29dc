// Requests to the engine, and the events that answer them.
#pragma once

#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "cache/kv_cache.h"
#include "sampling/beam_search.h"
#include "sampling/rules.h"
#include "sampling/sampling_options.h"

namespace onward {

// Tokens that are guessed and then checked, several in one step. The output is the same as without.
struct SpeculationOptions {
  int64_t lookup_tokens = 0;  // guessed from an earlier place with the same last tokens; 0: off
  int64_t lookup_ngram = 2;   // compares at most this many last tokens
  int64_t draft_tokens = 0;   // guessed by the draft model; 0: off

  bool on() const { return lookup_tokens > 0 || draft_tokens > 0; }
};

struct Request {
  std::vector<int32_t> prompt;  // at least one id, all inside the vocabulary
  int64_t max_new_tokens = 0;
  SamplingOptions sampling;
  int64_t num_sequences = 1;         // continue the prompt, each with its own draws
  std::optional<BeamOptions> beams;  // then num_sequences is 1
  SpeculationOptions speculation;
  std::vector<std::shared_ptr<EndRule>> end_rules;
  int64_t prompt_logprobs = -1;  // like SamplingOptions::logprobs, of the prompt
  int64_t priority = 0;          // higher goes first (scheduler.h)
  bool cache = true;             // false: every step computes all positions again
  bool progress = false;         // events say how far the prompt is computed, for each step
  bool gather = false;           // one event for each sequence, at its end, with all tokens
};

enum class FinishReason : uint8_t { none, stop, length, error };

// The tokens of a sequence before its last one, in a request that gathers.
struct Gathered {
  std::vector<int32_t> tokens;
  std::vector<TokenLogprobs> logprobs;  // of each, where they are asked for
  double first_time = 0;                // Event::time of the first
  int64_t guessed = 0;                  // as in Event, which has the sum
  int64_t accepted = 0;
};

// One token of one sequence, or an end, or both.
struct Event {
  int64_t request = 0;
  int64_t sequence = 0;  // its number in the request; with beams, the rank of the hypothesis
  int32_t token = -1;    // -1: the event carries no token
  FinishReason finish = FinishReason::none;                 // of the sequence
  bool ends_request = false;                                // no event of the request follows
  double score = std::numeric_limits<double>::quiet_NaN();  // of a finished hypothesis
  std::optional<TokenLogprobs> logprobs;                    // where they are asked for
  std::vector<TokenLogprobs> prompt_logprobs;  // of the tokens after the first, once a request
  int64_t cached_tokens = -1;    // of the prompt, not computed again: once a request, else -1
  int64_t prompt_computed = -1;  // tokens of the prompt, if `progress`; such an event has
                                 // nothing else
  int64_t guessed = 0;           // by speculation, since the sequence's last event
  int64_t accepted = 0;          // of these
  std::exception_ptr failure;    // with FinishReason::error
  std::unique_ptr<Gathered> gathered;  // the tokens before `token`; null: none, or already reported
  double time = 0;                     // seconds of the steady clock
};

struct EngineStats {
  int64_t steps = 0;
  int64_t prefill_tokens = 0;     // tokens computed before a request's first output
  int64_t decode_tokens = 0;      // tokens computed after it
  int64_t kv_computations = 0;    // tokens whose keys and values were computed (each in all layers)
  int64_t running = 0;            // requests that have not ended
  int64_t waiting = 0;            // of these, requests without a place in the cache
  int64_t preempted = 0;          // times that a request gave up its place for others
  int64_t sampled_on_device = 0;  // choices made by the device, of guesses too
  int64_t logits_rows_read = 0;   // rows of logits that the host looked at to choose
  int64_t cache_blocks_in_use = 0;   // by sequences
  int64_t cache_block_bytes = 0;     // of an exact block, in all layers
  int64_t cache_bytes = 0;           // of blocks in use and of kept blocks
  int64_t cache_bytes_reserved = 0;  // taken from the device
  int64_t cache_bytes_limit = 0;     // of cache_bytes
  int64_t prefix_tokens = 0;         // kept
  int64_t prefix_bytes = 0;
  int64_t prefix_evictions = 0;  // kept blocks that were dropped to make room
  PrefixStats prefixes;
};

}  // namespace onward
