/* Generates token ids from token ids, with the main functions of the C interface.
 *
 *   generate PACK [-n COUNT] [ID...]
 *
 * Without ids the prompt is the model's begin-of-text token. Each generated id is printed at once
 * as a line of stdout; a pipe converts it to text (onward doctor --docs native). C99. */
#include <onward/onward_c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVENTS = 16 };

static int fail(const char* what, onward_status status) {
  fprintf(stderr, "generate: %s: %s: %s\n", what, onward_status_name(status), onward_last_error());
  return 1;
}

/* Submits the prompt and prints the generated ids; returns the exit code. */
static int generate(onward_engine engine, const int32_t* prompt, size_t prompt_tokens,
                    int64_t count) {
  onward_request request;
  onward_event events[EVENTS];
  size_t num_events, i;
  int64_t id;
  int ended = 0;
  onward_status status;

  onward_request_init(&request);
  request.prompt = prompt;
  request.prompt_tokens = prompt_tokens;
  request.max_new_tokens = count;
  status = onward_engine_submit(engine, &request, &id);
  if (status != ONWARD_OK) return fail("submit", status);

  while (!ended) {
    status = onward_engine_step(engine, events, sizeof events[0], EVENTS, &num_events);
    if (status != ONWARD_OK) return fail("step", status);
    for (i = 0; i < num_events; ++i) {
      if (events[i].token >= 0) {
        printf("%d\n", (int)events[i].token);
        fflush(stdout);
      }
      if (events[i].status != ONWARD_OK) {
        fprintf(stderr, "generate: %s\n", events[i].message);
        return 1;
      }
      if (events[i].ends_request) ended = 1;
    }
  }
  return 0;
}

/* Returns the ids of the prompt; the caller frees them. Prints a message and returns null if an
 * argument is not a number. */
static int32_t* read_ids(int argc, char** argv, onward_model model, size_t* count) {
  int32_t* ids = malloc(sizeof(int32_t) * (size_t)(argc > 0 ? argc : 1));
  int i;
  if (ids == NULL) return NULL;
  for (i = 0; i < argc; ++i) {
    char* end;
    const long id = strtol(argv[i], &end, 10);
    if (end == argv[i] || *end != '\0' || id < 0 || id > INT32_MAX) {
      fprintf(stderr, "generate: '%s' is no token id\n", argv[i]);
      free(ids);
      return NULL;
    }
    ids[i] = (int32_t)id;
  }
  *count = (size_t)argc;
  if (argc == 0) {
    onward_model_info info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    onward_model_get_info(model, &info);
    ids[0] = info.bos_token_id >= 0 ? info.bos_token_id : 0;
    *count = 1;
  }
  return ids;
}

int main(int argc, char** argv) {
  onward_model model = NULL;
  onward_engine engine = NULL;
  onward_status status;
  int64_t count = 32;
  int first = 2;
  size_t prompt_tokens = 0;
  int32_t* prompt;
  int code;

  if (argc >= 4 && strcmp(argv[2], "-n") == 0) {
    count = strtol(argv[3], NULL, 10);
    first = 4;
  }
  if (argc < 2) {
    fprintf(stderr, "usage: generate PACK [-n COUNT] [ID...]\n");
    return 2;
  }
  status = onward_model_open(argv[1], NULL, &model);
  if (status != ONWARD_OK) return fail(argv[1], status);
  status = onward_engine_open(model, NULL, &engine);
  if (status != ONWARD_OK) {
    onward_model_close(model);
    return fail("engine", status);
  }
  prompt = read_ids(argc - first, argv + first, model, &prompt_tokens);
  code = prompt == NULL ? 2 : generate(engine, prompt, prompt_tokens, count);
  free(prompt);
  onward_engine_close(engine);
  onward_model_close(model);
  return code;
}
