/* The loop of a C program over one engine, and a trace that sums up what its steps took inside. For
 * benchmarks/native_overhead.py, which compiles it. Knows the public header alone. */
#include <onward/onward_c.h>
#include <stdlib.h>
#include <time.h>

typedef struct {
  int64_t steps;
  double seconds; /* inside the engine's own steps */
} step_sums;

static void add_step(void* context, const onward_step_trace* step) {
  step_sums* sums = (step_sums*)context;
  ++sums->steps;
  sums->seconds += step->seconds;
}

/* Sums up every step of the engine, whoever runs it; null: no more. */
int32_t sum_steps(uintptr_t engine, step_sums* sums) {
  return onward_engine_set_trace((onward_engine)engine, sums ? add_step : NULL, sums);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* `requests` greedy outputs of `tokens` tokens each, side by side; *written: their tokens in all. */
int32_t generate(uintptr_t value, const int32_t* prompt, int64_t prompt_tokens, int64_t requests,
                 int64_t tokens, double* seconds, int64_t* written) {
  enum { kCapacity = 64 };
  onward_engine engine = (onward_engine)value;
  onward_event events[kCapacity];
  onward_request request;
  onward_status status;
  int64_t id, open = requests;
  const double begin = now();
  *written = 0;
  onward_request_init(&request);
  request.prompt = prompt;
  request.prompt_tokens = (size_t)prompt_tokens;
  request.max_new_tokens = tokens;
  request.ignore_eos = 1;
  for (int64_t i = 0; i < requests; ++i) {
    status = onward_engine_submit(engine, &request, &id);
    if (status != ONWARD_OK) return status;
  }
  while (open > 0) {
    size_t count;
    status = onward_engine_step(engine, events, sizeof events[0], kCapacity, &count);
    if (status != ONWARD_OK) return status;
    for (size_t i = 0; i < count; ++i) {
      *written += events[i].token >= 0;
      open -= events[i].ends_request;
    }
  }
  *seconds = now() - begin;
  return ONWARD_OK;
}
