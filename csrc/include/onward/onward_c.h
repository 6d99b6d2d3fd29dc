/* The C interface of onward: open a pack, make an engine, submit requests, run steps, read events.
 *
 * Handles. A handle is a number with a pointer type. It is never dereferenced and never used twice.
 * A call with a closed, foreign or null handle returns ONWARD_CLOSED. Every function may be called
 * from any thread; calls that need the same engine take turns. No exception and no C++ type crosses
 * this interface.
 *
 * Structs. A struct that the caller fills begins with `size`, the caller's sizeof. Call its _init
 * function first. A library with more fields uses their defaults. A library with fewer fields
 * returns ONWARD_INVALID_ARGUMENT if it would have to ignore a value. Pointers are read during the
 * call and not kept, unless a comment says otherwise.
 *
 * Errors. A function that fails does not change its results. onward_last_error() gives the message.
 *
 * Rules and traces are called inside a step. They must not call the engine that called them
 * (ONWARD_INVALID_ARGUMENT), except onward_engine_cancel, onward_engine_cancel_sequence,
 * onward_engine_interrupt and onward_engine_close.
 *
 * Fork. A forked child may use its handles. Its engines begin without requests. An engine returns
 * ONWARD_CLOSED in the child if another thread was inside a step at the time of the fork.
 *
 * `onward doctor --docs NAME` prints a document: generation explains the options of a request,
 * cache explains the options of the cache, and c-interface explains how to use these functions.
 * Names and defaults are the same as in Python.
 *
 * If you change this file: functions and values are only added. Add a field at the end of its
 * struct, at a multiple of 8, because padding in the struct of an older caller is not zero. */
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
  ONWARD_INVALID_ARGUMENT = 1, /* a value is not allowed; the message names it */
  ONWARD_CLOSED = 2,           /* a handle is null, closed or not from this library */
  ONWARD_IO_ERROR = 3,         /* a file cannot be opened or read */
  ONWARD_PACK_ERROR = 4,       /* a file is not a pack, is damaged, or has another layout */
  ONWARD_NO_MEMORY = 5,
  ONWARD_NUMERICS_ERROR = 6, /* the logits contain NaN or infinity */
  ONWARD_INTERRUPTED = 7,    /* stopped by onward_engine_interrupt; nothing is lost */
  ONWARD_INTERNAL_ERROR = 8, /* a fault of onward; please report the message */
  ONWARD_DEVICE_ERROR = 9    /* a device does not exist or has failed */
};

typedef struct onward_model_handle* onward_model;
typedef struct onward_engine_handle* onward_engine;

ONWARD_API const char* onward_version(void);                     /* "0.1.0" */
ONWARD_API const char* onward_status_name(onward_status status); /* "ONWARD_OK"; never null */
/* The message of the last failed call of the calling thread: `where: what, found, expected`. It is
 * valid until the next call of that thread; never null. */
ONWARD_API const char* onward_last_error(void);

/* ---- models ---- */

/* Every _init_sized function writes the defaults into the first `size` bytes, where `size` is the
 * caller's sizeof, and sets the field `size`. _init does the same with the size in this header. */

typedef struct onward_model_options {
  size_t size;
  int32_t threads; /* number of threads that copy weights if `copy` is 1; 0: all cores */
  int32_t verify;  /* 1: compare every tensor with its checksum first (reads the whole file) */
  int32_t copy;    /* 1: copy the weights to memory of this process, on huge pages if available;
                      0: keep the file mapped; its pages are shared between processes */
  const char* device; /* the device that holds the weights and computes: "cuda", "cuda:1";
                         null: "cpu". The pack must be made for it */
} onward_model_options;
ONWARD_API void onward_model_options_init_sized(onward_model_options* options, size_t size);
static inline void onward_model_options_init(onward_model_options* options) {
  onward_model_options_init_sized(options, sizeof *options);
}

typedef struct onward_model_info {
  size_t size;
  int64_t vocab_size;
  int64_t max_context; /* in tokens, prompt and output together */
  int64_t num_layers;
  int64_t hidden_size;
  int64_t weight_bytes;
  int32_t bos_token_id; /* -1: none */
  int32_t pad_token_id; /* -1: none */
  int64_t num_eos_token_ids;
} onward_model_info;

/* Opens a pack that `onward pack` has written. options may be null. */
ONWARD_API onward_status onward_model_open(const char* path, const onward_model_options* options,
                                           onward_model* model);
/* Engines of the model stay usable. */
ONWARD_API onward_status onward_model_close(onward_model model);
/* The caller sets info->size. */
ONWARD_API onward_status onward_model_get_info(onward_model model, onward_model_info* info);
/* Writes at most `capacity` of the ids that end an output. *count is the number of all of them. */
ONWARD_API onward_status onward_model_eos_token_ids(onward_model model, int32_t* ids,
                                                    size_t capacity, size_t* count);
/* Returns a text of the pack's metadata: "tokenizer.json", "chat_template", "config", "name"...
 * Writes at most `capacity` bytes without a terminator. *length is the length of the whole text in
 * bytes. An unknown key is ONWARD_INVALID_ARGUMENT. */
ONWARD_API onward_status onward_model_metadata(onward_model model, const char* key, char* text,
                                               size_t capacity, size_t* length);

/* ---- engines ---- */

typedef struct onward_engine_options {
  size_t size;
  int32_t threads; /* 0: the number of cores that this process may use */
  int64_t prefill_chunk_tokens;
  int64_t max_sequences;
  int64_t max_context;   /* in tokens; 0: the context of the model */
  const char* kv_keys;   /* null or "exact", "int8", "q4_0", "turbo4", "turbo3", "turbo2" */
  const char* kv_values; /* the same */
  int64_t kv_window_tokens;
  int32_t kv_sinks;
  int64_t attention_window;   /* 0: off */
  int64_t kv_cache_bytes;     /* 0: no limit, and kept prefixes are never removed */
  int32_t prefix_cache;       /* 1: prompts reuse the keys and values of earlier prompts */
  int64_t prefix_cache_bytes; /* -1: no separate limit for kept prefixes */
} onward_engine_options;
ONWARD_API void onward_engine_options_init_sized(onward_engine_options* options, size_t size);
static inline void onward_engine_options_init(onward_engine_options* options) {
  onward_engine_options_init_sized(options, sizeof *options);
}

/* options may be null. */
ONWARD_API onward_status onward_engine_open(onward_model model,
                                            const onward_engine_options* options,
                                            onward_engine* engine);
/* Makes another handle of an engine, for a caller with its own requests and events. The requests of
 * both handles run in the same steps and share the cache. */
ONWARD_API onward_status onward_engine_share(onward_engine engine, onward_engine* other);
/* Cancels the requests of this handle. An engine with other handles continues for them. Like
 * cancel, it waits for the running step, which may still call rules and traces. When it has
 * returned, they are not called any more. */
ONWARD_API onward_status onward_engine_close(onward_engine engine);
/* Makes a new handle of the engine's model. The caller must close it. It has no metadata if the
 * engine belongs to Python (LLM.engine_handle). */
ONWARD_API onward_status onward_engine_model(onward_engine engine, onward_model* model);

/* ---- requests ---- */

/* Changes the scores of the whole vocabulary; -infinity bans a token. `tokens` is the prompt
 * followed by the output. The thread that steps calls one rule at a time. A status other than
 * ONWARD_OK ends the request with that status. */
typedef onward_status (*onward_score_rule)(void* context, const int32_t* tokens, size_t num_tokens,
                                           float* scores, size_t vocab_size);
/* Returns 1 if the output ends with the last token, otherwise 0. Any other value ends the request
 * with an error. */
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
  double smoothing_factor; /* 0: off */
  double smoothing_curve;  /* 1: a parabola */
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
  int64_t min_new_tokens;        /* before this number only end_rule can end an output */
  int32_t ignore_eos;            /* 1: the model's own end tokens do not end an output */
  const int32_t* stop_token_ids; /* further tokens that end an output */
  size_t num_stop_token_ids;
  const onward_sampling* sampling; /* null: greedy */
  const onward_beams* beams;       /* null: none; then num_sequences is 1 */
  int64_t num_sequences;           /* outputs of the prompt, each with its own random numbers */
  int64_t lookup_tokens;           /* tokens to guess a step from the text so far; 0: off */
  int64_t logprobs;                /* -1: none; n: of the chosen and the n most likely tokens */
  int64_t priority;                /* a higher value is served first */
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

/* Submits a request. *id is the number that its events carry; an engine counts from 0 and uses each
 * number once. */
ONWARD_API onward_status onward_engine_submit(onward_engine engine, const onward_request* request,
                                              int64_t* id);
/* Cancels a request or one of its sequences. When the call has returned, no thread gets another
 * event of it. A request that is unknown, belongs to another handle or has ended is not changed.
 * The call waits for the running step, which may still call the request's rules. Cancelling the
 * last sequence ends the request without an event. */
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

/* A token of a sequence, the end of a sequence, or both. */
typedef struct onward_event {
  int64_t request;
  int64_t sequence;     /* number in the request; with beams the rank of the hypothesis */
  int32_t token;        /* -1: the event has no token */
  int32_t finish;       /* ONWARD_FINISH_* of the sequence */
  int32_t ends_request; /* 1: this is the last event of the request */
  onward_status status; /* the error that ended the request, otherwise ONWARD_OK */
  const char* message;  /* the message of the error, otherwise "" */
  double score;         /* of a finished hypothesis, otherwise NaN */
  double logprob;       /* of the token in the model's distribution; NaN if not requested */
  double chain_logprob; /* the same after the chain of processors and filters */
  const onward_scored_token*
      top; /* the most likely tokens of the model, best first; empty if not requested */
  size_t num_top;
  int64_t cached_tokens; /* prompt tokens from the cache, in one event of a request; else -1 */
  double time;           /* in seconds, of the system's steady clock */
} onward_event;

/* Runs one step for all handles of the engine, unless this handle has events from an earlier step.
 * Writes the events of this handle in order, at most `capacity` (at least 1). The next call returns
 * the rest. event_size is the caller's sizeof(onward_event). *count is 0 if there is nothing to do
 * (see onward_stats.running), if a prompt is still being read, or if another handle ran the step.
 * The memory that events point to is valid until the next onward_engine_step of the calling thread,
 * for any engine. */
ONWARD_API onward_status onward_engine_step(onward_engine engine, onward_event* events,
                                            size_t event_size, size_t capacity, size_t* count);
/* May be called from any thread and from a signal handler. The running call of this handle (step,
 * score or logits, computing or waiting), or otherwise its next one, ends within one layer with
 * ONWARD_INTERRUPTED. No sequence has changed. onward_last_error is not changed. */
ONWARD_API onward_status onward_engine_interrupt(onward_engine engine);

/* ---- scores, logits, statistics ---- */

/* Writes the natural logarithms of the probabilities of ids[1], ids[2]...: num_ids - 1 values. */
ONWARD_API onward_status onward_engine_score(onward_engine engine, const int32_t* ids,
                                             size_t num_ids, double* logprobs);
/* Writes the logits after each id, in the shape (num_ids, vocab_size). */
ONWARD_API onward_status onward_engine_logits(onward_engine engine, const int32_t* ids,
                                              size_t num_ids, float* logits);

typedef struct onward_stats {
  size_t size; /* set by the caller */
  int64_t steps;
  int64_t prefill_tokens;
  int64_t decode_tokens;
  int64_t kv_computations;
  int64_t running; /* requests of all handles that have not ended */
  int64_t waiting;
  int64_t preempted;
  int64_t cache_blocks_in_use;
  int64_t cache_bytes;
  int64_t cache_bytes_reserved;
  int64_t prefix_tokens;
  int64_t prefix_hits;
} onward_stats;
ONWARD_API onward_status onward_engine_stats(onward_engine engine, onward_stats* stats);

/* The work of one step of any handle. The thread that ran the step calls the trace after it. The
 * sums over all steps equal onward_stats, except that onward_stats also counts the work of score
 * and logits. */
typedef struct onward_step_trace {
  size_t size; /* set by the library */
  int64_t step;
  int64_t prefill_tokens; /* of this step */
  int64_t decode_tokens;
  int64_t events; /* of all handles */
  int64_t running;
  int64_t waiting;
  int64_t cache_bytes;
  double begin; /* in seconds, of the system's steady clock */
  double seconds;
} onward_step_trace;
typedef void (*onward_trace)(void* context, const onward_step_trace* step);
/* Sets the trace for the steps of all handles of the engine; null removes it. A trace must not call
 * the engine. When this call has returned, the previous trace is not called any more. */
ONWARD_API onward_status onward_engine_set_trace(onward_engine engine, onward_trace trace,
                                                 void* context);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ONWARD_C_H */
