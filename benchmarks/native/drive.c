/* The loop of a C program that drives an engine, and a trace that sums the time of the engine's
 * steps. benchmarks/native_overhead.py compiles it. It includes only the public header. */
#include <onward/onward_c.h>
#include <stdlib.h>
#include <time.h>

typedef struct {
  int64_t steps;
  double seconds; /* of the engine's own steps */
} step_sums;

static void add_step(void* context, const onward_step_trace* step) {
  step_sums* sums = (step_sums*)context;
  ++sums->steps;
  sums->seconds += step->seconds;
}

/* Sums the steps of all handles of the engine; null ends the sum. */
int32_t sum_steps(uintptr_t engine, step_sums* sums) {
  return onward_engine_set_trace((onward_engine)engine, sums ? add_step : NULL, sums);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Runs `requests` greedy requests of `tokens` tokens at once. *written: all their tokens. */
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
