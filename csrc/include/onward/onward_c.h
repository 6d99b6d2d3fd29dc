/* The C interface of onward: open a pack, make an engine, hand in requests, step, read events.
 *
 * Handles are numbers in a pointer's clothing: they are never dereferenced, never used twice, and a
 * closed, foreign or null one is recognised (ONWARD_CLOSED). Every function may be called from any
 * thread; calls that need the same engine take turns. No exception and no C++ type crosses.
 *
 * Structs that the caller fills begin with `size`, the caller's sizeof: a library that knows more
 * fields takes their defaults, one that knows fewer refuses what it would have to ignore. Fill them
 * with their _init function first. Pointers are read during the call and not kept, unless it says
 * so. Functions that fail leave their results alone; onward_last_error() tells more.
 *
 * Rules and traces are called inside a step. They must not call the engine that called them
 * (ONWARD_INVALID_ARGUMENT), but for onward_engine_cancel, _cancel_sequence, _interrupt and _close.
 *
 * In a forked child handles stay good; an engine there begins without requests, and says
 * ONWARD_CLOSED where the fork fell into another thread's step.
 *
 * `onward doctor --docs NAME` prints a document: generation explains the options of a request, cache
 * explains the options of the cache, and c-interface explains how to use these functions. Names and
 * defaults are Python's.
 *
 * For those who change this file: functions and values are only added. A field is added at the end
 * of its struct, at a multiple of 8: what is padding in an older caller's struct is not zero. */
#ifndef ONWARD_C_H
#define ONWARD_C_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ONWARD_API __attribute__((visibility("default")))
#else
#define ONWARD_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t onward_status;
enum {
  ONWARD_OK = 0,
  ONWARD_INVALID_ARGUMENT = 1, /* a value that cannot be used: the message names it */
  ONWARD_CLOSED = 2,           /* a handle that is null, closed or none of this library's */
  ONWARD_IO_ERROR = 3,         /* a file that cannot be opened or read */
  ONWARD_PACK_ERROR = 4,       /* a file that is no pack, a damaged one, or of another layout */
  ONWARD_NO_MEMORY = 5,
  ONWARD_NUMERICS_ERROR = 6, /* NaN or infinity among the logits */
  ONWARD_INTERRUPTED = 7,    /* by onward_engine_interrupt; nothing is lost */
  ONWARD_INTERNAL_ERROR = 8, /* a fault of onward's: please report the message */
  ONWARD_DEVICE_ERROR = 9    /* a device that is not there, or that failed */
};

typedef struct onward_model_handle* onward_model;
typedef struct onward_engine_handle* onward_engine;

ONWARD_API const char* onward_version(void);                     /* "0.1.0" */
ONWARD_API const char* onward_status_name(onward_status status); /* "ONWARD_OK"; never null */
/* Of the calling thread's last call that failed: `where: what, found, expected`. Good until its
 * next call; never null. */
ONWARD_API const char* onward_last_error(void);

/* ---- models ---- */

/* Every _init_sized function writes the defaults into the first `size` bytes, the caller's sizeof,
 * and `size` itself; _init is the same with the size of this header. */

typedef struct onward_model_options {
  size_t size;
  int32_t threads; /* that copy weights, where they are copied; 0: as many as there are */
  int32_t verify;  /* 1: hold every tensor against its checksum first (reads the whole file) */
  int32_t copy;    /* 1: weights are copied to memory of this process, on huge pages where there are
                      any; 0: the file stays mapped, and its pages are shared between processes */
  const char* device; /* whose memory holds the weights, and what computes in engines of the model:
                         "cuda", "cuda:1"; null: "cpu". The pack has to be made for it */
} onward_model_options;
ONWARD_API void onward_model_options_init_sized(onward_model_options* options, size_t size);
static inline void onward_model_options_init(onward_model_options* options) {
  onward_model_options_init_sized(options, sizeof *options);
}

typedef struct onward_model_info {
  size_t size;
  int64_t vocab_size;
  int64_t max_context; /* tokens of prompt and output together */
  int64_t num_layers;
  int64_t hidden_size;
  int64_t weight_bytes;
  int32_t bos_token_id; /* -1: none */
  int32_t pad_token_id; /* -1: none */
  int64_t num_eos_token_ids;
} onward_model_info;

/* A pack, as `onward pack` writes it. options may be null. */
ONWARD_API onward_status onward_model_open(const char* path, const onward_model_options* options,
                                           onward_model* model);
/* Engines of the model go on. */
ONWARD_API onward_status onward_model_close(onward_model model);
/* info->size is set by the caller. */
ONWARD_API onward_status onward_model_get_info(onward_model model, onward_model_info* info);
/* Writes the first `capacity` of the ids that end an output; *count: how many there are. */
ONWARD_API onward_status onward_model_eos_token_ids(onward_model model, int32_t* ids,
                                                    size_t capacity, size_t* count);
/* A text of the pack's metadata: "tokenizer.json", "chat_template", "config", "name"...
 * Writes at most `capacity` bytes and no terminator; *length: how many there are. A key that is
 * not there is ONWARD_INVALID_ARGUMENT. */
ONWARD_API onward_status onward_model_metadata(onward_model model, const char* key, char* text,
                                               size_t capacity, size_t* length);

/* ---- engines ---- */

typedef struct onward_engine_options {
  size_t size;
  int32_t threads; /* 0: as many processors as this process may use */
  int64_t prefill_chunk_tokens;
  int64_t max_sequences;
  int64_t max_context;   /* 0: as many as the model's */
  const char* kv_keys;   /* null or "exact", "int8", "q4_0", "turbo4", "turbo3", "turbo2" */
  const char* kv_values; /* the same */
  int64_t kv_window_tokens;
  int32_t kv_sinks;
  int64_t attention_window;   /* 0: off */
  int64_t kv_cache_bytes;     /* 0: no limit, and prefixes are kept for ever */
  int32_t prefix_cache;       /* 1: prompts reuse what earlier ones computed */
  int64_t prefix_cache_bytes; /* -1: no limit of its own */
} onward_engine_options;
ONWARD_API void onward_engine_options_init_sized(onward_engine_options* options, size_t size);
static inline void onward_engine_options_init(onward_engine_options* options) {
  onward_engine_options_init_sized(options, sizeof *options);
}

/* options may be null. */
ONWARD_API onward_status onward_engine_open(onward_model model,
                                            const onward_engine_options* options,
                                            onward_engine* engine);
/* One more handle of an engine, for a caller with requests and events of its own: both are in the
 * same steps and share the cache. */
ONWARD_API onward_status onward_engine_share(onward_engine engine, onward_engine* other);
/* Gives up this handle's requests. An engine that others share goes on for them. Like cancelling,
 * it waits for the step that runs now, whose rules and traces may still be called: not after it. */
ONWARD_API onward_status onward_engine_close(onward_engine engine);
/* A new handle of the engine's model, to be closed by the caller. It has no metadata where the
 * engine is Python's (LLM.engine_handle). */
ONWARD_API onward_status onward_engine_model(onward_engine engine, onward_model* model);

/* ---- requests ---- */

/* Changes the scores of the whole vocabulary: -infinity bans a token. tokens: prompt, then output.
 * Called by the thread that steps, one rule at a time; another status than ONWARD_OK ends the
 * request with that status. */
typedef onward_status (*onward_score_rule)(void* context, const int32_t* tokens, size_t num_tokens,
                                           float* scores, size_t vocab_size);
/* Whether an output is at its end: 1 or 0; anything else ends the request with an error. */
typedef int32_t (*onward_end_rule)(void* context, const int32_t* tokens, size_t num_tokens);

typedef struct onward_logit_bias {
  int32_t token;
  double bias;
} onward_logit_bias;

typedef struct onward_sampling {
  size_t size;
  double temperature; /* 0: greedy */
  int64_t top_k;      /* 0: off */
  double top_p;       /* 1: off */
  double min_p;       /* 0: off, as all that follow */
  double typical_p;   /* 1: off */
  double top_n_sigma;
  double epsilon_cutoff;
  double eta_cutoff;
  double xtc_probability;
  double xtc_threshold;
  double dynatemp_range;
  double dynatemp_exponent;
  int64_t mirostat; /* 0 or 2 */
  double mirostat_tau;
  double mirostat_eta;
  double repetition_penalty; /* 1: off */
  double presence_penalty;
  double frequency_penalty;
  double dry_multiplier;
  double dry_base;
  int64_t dry_allowed_length;
  int64_t no_repeat_ngram_size;
  const char* order; /* null or "hf", "vllm", "llama.cpp" */
  uint64_t seed;
  uint64_t stream; /* tells requests of equal seed apart */
  const onward_logit_bias* logit_bias;
  size_t num_logit_bias;
  const int32_t* suppress_tokens;
  size_t num_suppress_tokens;
  const int32_t* allowed_token_ids; /* null: all */
  size_t num_allowed_token_ids;
} onward_sampling;
ONWARD_API void onward_sampling_init_sized(onward_sampling* sampling, size_t size);
static inline void onward_sampling_init(onward_sampling* sampling) {
  onward_sampling_init_sized(sampling, sizeof *sampling);
}

typedef struct onward_beams {
  size_t size;
  int64_t num_beams;
  int64_t num_beam_groups;
  double diversity_penalty;
  double length_penalty;
  int32_t early_stopping; /* 0: false, 1: true, 2: "never" */
  int64_t num_return_sequences;
} onward_beams;
ONWARD_API void onward_beams_init_sized(onward_beams* beams, size_t size);
static inline void onward_beams_init(onward_beams* beams) {
  onward_beams_init_sized(beams, sizeof *beams);
}

typedef struct onward_request {
  size_t size;
  const int32_t* prompt;
  size_t prompt_tokens; /* at least 1 */
  int64_t max_new_tokens;
  int64_t min_new_tokens;        /* before so many nothing ends an output but its rule */
  int32_t ignore_eos;            /* 1: the model's own end tokens do not end an output */
  const int32_t* stop_token_ids; /* that end it besides */
  size_t num_stop_token_ids;
  const onward_sampling* sampling; /* null: greedy */
  const onward_beams* beams;       /* null: none; then num_sequences is 1 */
  int64_t num_sequences;           /* that continue the prompt, each with draws of its own */
  int64_t lookup_tokens;           /* guessed from the text so far and checked; 0: off */
  int64_t logprobs;                /* -1: none; n: of the chosen token and of the n likeliest */
  int64_t priority;                /* higher goes first */
  int32_t cache;                   /* 0: every step computes all positions again */
  onward_score_rule score_rule;    /* null: none; kept until the request ends */
  void* score_rule_context;
  onward_end_rule end_rule; /* the same */
  void* end_rule_context;
} onward_request;
ONWARD_API void onward_request_init_sized(onward_request* request, size_t size);
static inline void onward_request_init(onward_request* request) {
  onward_request_init_sized(request, sizeof *request);
}

/* Takes a request; *id: of its events, counted from 0 and never the same in one engine. */
ONWARD_API onward_status onward_engine_submit(onward_engine engine, const onward_request* request,
                                              int64_t* id);
/* No event of the request, or of one of its sequences, follows, in any thread. One that is unknown,
 * another handle's, or has ended is left alone. Waits for the step that runs now, whose rules may
 * still be called. A request ends with its last sequence; no event tells that. */
ONWARD_API onward_status onward_engine_cancel(onward_engine engine, int64_t request);
ONWARD_API onward_status onward_engine_cancel_sequence(onward_engine engine, int64_t request,
                                                       int64_t sequence);

/* ---- events ---- */

enum {
  ONWARD_FINISH_NONE = 0,
  ONWARD_FINISH_STOP = 1,
  ONWARD_FINISH_LENGTH = 2,
  ONWARD_FINISH_ERROR = 3
};

typedef struct onward_scored_token {
  int32_t token;
  double logprob;
} onward_scored_token;

/* One token of one sequence, or an end, or both. */
typedef struct onward_event {
  int64_t request;
  int64_t sequence;     /* of the request; with beams the rank of the hypothesis */
  int32_t token;        /* -1: the event carries none */
  int32_t finish;       /* ONWARD_FINISH_*, of the sequence */
  int32_t ends_request; /* no event of the request follows */
  onward_status status; /* of a request that ended with an error, else ONWARD_OK */
  const char* message;  /* beside a status; else "" */
  double score;         /* of a finished hypothesis, else NaN */
  double logprob;       /* of the token by the model alone, where asked for, else NaN */
  double chain_logprob; /* the same after the chain of processors and filters */
  const onward_scored_token*
      top; /* the likeliest by the model alone, best first, where asked for */
  size_t num_top;
  int64_t cached_tokens; /* of the prompt, not computed again: once a request, else -1 */
  double time;           /* seconds of the system's steady clock */
} onward_event;

/* Runs one step for everybody who shares the engine, unless this handle has events left from an
 * earlier one, and writes this handle's events in order, at most `capacity`, at least 1; the rest
 * comes with the next call. event_size: the caller's sizeof(onward_event). *count 0: nobody has
 * anything to do, a prompt is still being read, or others' turn it was; see onward_stats.running.
 * What events point to is good until the calling thread's next step, of whatever engine. */
ONWARD_API onward_status onward_engine_step(onward_engine engine, onward_event* events,
                                            size_t event_size, size_t capacity, size_t* count);
/* From any thread or a signal handler: what this handle computes now (a step, score or logits) or
 * waits for, or else the next it does, ends within one layer with ONWARD_INTERRUPTED, and no
 * sequence has moved. Leaves onward_last_error alone. */
ONWARD_API onward_status onward_engine_interrupt(onward_engine engine);

/* ---- what else an engine tells ---- */

/* Natural logarithms of the probabilities of ids[1], ids[2]...: num_ids - 1 of them. */
ONWARD_API onward_status onward_engine_score(onward_engine engine, const int32_t* ids,
                                             size_t num_ids, double* logprobs);
/* Logits after each id: (num_ids, vocab_size). */
ONWARD_API onward_status onward_engine_logits(onward_engine engine, const int32_t* ids,
                                              size_t num_ids, float* logits);

typedef struct onward_stats {
  size_t size; /* the caller's */
  int64_t steps;
  int64_t prefill_tokens;
  int64_t decode_tokens;
  int64_t kv_computations;
  int64_t running; /* requests of all who share the engine that have not ended */
  int64_t waiting;
  int64_t preempted;
  int64_t cache_blocks_in_use;
  int64_t cache_bytes;
  int64_t cache_bytes_reserved;
  int64_t prefix_tokens;
  int64_t prefix_hits;
} onward_stats;
ONWARD_API onward_status onward_engine_stats(onward_engine engine, onward_stats* stats);

/* What one step did, whoever ran it; told by the thread that ran it, after it. Summed up they are
 * onward_stats, less what score and logits have computed. */
typedef struct onward_step_trace {
  size_t size; /* the library's */
  int64_t step;
  int64_t prefill_tokens; /* of this step */
  int64_t decode_tokens;
  int64_t events; /* of all handles */
  int64_t running;
  int64_t waiting;
  int64_t cache_bytes;
  double begin; /* seconds of the system's steady clock */
  double seconds;
} onward_step_trace;
typedef void (*onward_trace)(void* context, const onward_step_trace* step);
/* For the steps of everybody who shares the engine; null: no more. trace must not call the engine;
 * once this returns, the trace that was there before is called no more. */
ONWARD_API onward_status onward_engine_set_trace(onward_engine engine, onward_trace trace,
                                                 void* context);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ONWARD_C_H */
