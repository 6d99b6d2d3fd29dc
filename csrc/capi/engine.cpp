// The functions onward_engine_*. Each handle is a client of a shared engine, which orders the
// turns.
#include <algorithm>
#include <memory>
#include <utility>

#include "capi/events.h"
#include "capi/handles.h"
#include "capi/options.h"
#include "capi/requests.h"
#include "capi/status.h"
#include "capi/wrap.h"
#include "device/device.h"

using namespace onward;  // NOLINT: the functions below belong to C

namespace {

using capi::EngineHandle;
using capi::guarded;
using capi::require_pointer;

capi::WrittenEvents& written_events() {
  static thread_local capi::WrittenEvents written;
  return written;
}

// Calls body(engine, poll) while no other client uses the engine.
template <typename Body>
auto alone(EngineHandle& handle, const Body& body) {
  const SharedEngine::Poll poll = handle.poll();
  return handle.client().alone(poll, [&](Engine& engine) { return body(engine, poll); });
}

std::vector<int32_t> read_tokens(const EngineHandle& handle, const int32_t* ids, size_t count) {
  const auto most = static_cast<size_t>(handle.engine().max_context());
  return capi::read_ids("ids", ids, count, most);
}

onward_step_trace to_c(const StepTrace& step) {
  onward_step_trace trace{};
  trace.size = sizeof trace;
  trace.step = step.step;
  trace.prefill_tokens = step.prefill_tokens;
  trace.decode_tokens = step.decode_tokens;
  trace.events = step.events;
  trace.running = step.running;
  trace.waiting = step.waiting;
  trace.cache_bytes = step.cache_bytes;
  trace.begin = step.begin;
  trace.seconds = step.seconds;
  return trace;
}

}  // namespace

uintptr_t onward::capi::open_engine_handle(std::shared_ptr<SharedEngine> engine,
                                           std::vector<int32_t> eos_token_ids) {
  auto pack = std::make_shared<Pack>();
  pack->model = engine->engine().shared_model();
  pack->vocabulary.eos_token_ids = std::move(eos_token_ids);
  return reinterpret_cast<uintptr_t>(
      open_handle(std::make_shared<EngineHandle>(std::move(engine), std::move(pack))));
}

onward_status onward_engine_open(onward_model model, const onward_engine_options* options,
                                 onward_engine* engine) {
  return guarded([&] {
    std::shared_ptr<const Pack> pack = capi::find(model);
    require_pointer("engine", engine);
    const capi::EngineSettings settings = capi::read_engine_options(options);
    auto shared = std::make_shared<SharedEngine>(
        pack->model, Device(pack->model->store->device()).make_backend(settings.threads),
        settings.options);
    *engine = capi::open_handle(std::make_shared<EngineHandle>(std::move(shared), std::move(pack)));
  });
}

onward_status onward_engine_share(onward_engine engine, onward_engine* other) {
  return guarded([&] {
    const std::shared_ptr<EngineHandle> handle = capi::find(engine);
    require_pointer("other", other);
    *other = capi::open_handle(
        std::make_shared<EngineHandle>(handle->client().shared(), handle->pack()));
  });
}

onward_status onward_engine_close(onward_engine engine) {
  return guarded([&] {
    const std::shared_ptr<EngineHandle> handle = capi::take(engine);
    handle->client().close();
    handle->client().wait_for_step();
  });
}

onward_status onward_engine_model(onward_engine engine, onward_model* model) {
  return guarded([&] {
    const std::shared_ptr<EngineHandle> handle = capi::find(engine);
    require_pointer("model", model);
    *model = capi::open_handle(handle->pack());
  });
}

onward_status onward_engine_submit(onward_engine engine, const onward_request* request,
                                   int64_t* id) {
  return guarded([&] {
    const std::shared_ptr<EngineHandle> handle = capi::find(engine);
    require_pointer("id", id);
    Request read = capi::read_request(request, *handle->pack(), handle->engine().max_context());
    *id = handle->client().submit(std::move(read), {});
  });
}

onward_status onward_engine_cancel(onward_engine engine, int64_t request) {
  return guarded([&] {
    const std::shared_ptr<EngineHandle> handle = capi::find(engine);
    handle->client().cancel(request);
    handle->client().wait_for_step();
  });
}

onward_status onward_engine_cancel_sequence(onward_engine engine, int64_t request,
                                            int64_t sequence) {
  return guarded([&] {
    const std::shared_ptr<EngineHandle> handle = capi::find(engine);
    handle->client().cancel(request, sequence);
    handle->client().wait_for_step();
  });
}

onward_status onward_engine_step(onward_engine engine, onward_event* events, size_t event_size,
                                 size_t capacity, size_t* count) {
  return guarded([&] {
    const std::shared_ptr<EngineHandle> handle = capi::find(engine);
    require_pointer("events", events);
    require_pointer("count", count);
    capi::require_size("event", event_size, sizeof(onward_event));
    if (capacity == 0) throw InvalidArgument("capacity: found 0, expected at least 1");
    const SharedEngine::Poll poll = handle->poll();
    poll();  // an earlier interrupt
    std::vector<Event> taken = handle->client().step(poll, capacity);
    try {
      written_events().write(taken, events, event_size);
    } catch (...) {
      handle->client().give_back(std::move(taken));
      throw;
    }
    *count = taken.size();
  });
}

onward_status onward_engine_interrupt(onward_engine engine) {
  return capi::interrupt(engine) ? ONWARD_OK : ONWARD_CLOSED;
}

onward_status onward_engine_score(onward_engine engine, const int32_t* ids, size_t num_ids,
                                  double* logprobs) {
  return guarded([&] {
    const std::shared_ptr<EngineHandle> handle = capi::find(engine);
    const std::vector<int32_t> read = read_tokens(*handle, ids, num_ids);
    if (num_ids > 1) require_pointer("logprobs", logprobs);
    const std::vector<double> found = alone(
        *handle, [&](Engine& e, const SharedEngine::Poll& poll) { return e.score(read, poll); });
    std::copy(found.begin(), found.end(), logprobs);
  });
}

onward_status onward_engine_logits(onward_engine engine, const int32_t* ids, size_t num_ids,
                                   float* logits) {
  return guarded([&] {
    const std::shared_ptr<EngineHandle> handle = capi::find(engine);
    const std::vector<int32_t> read = read_tokens(*handle, ids, num_ids);
    require_pointer("logits", logits);
    const std::vector<float> found = alone(
        *handle, [&](Engine& e, const SharedEngine::Poll& poll) { return e.logits(read, poll); });
    std::copy(found.begin(), found.end(), logits);
  });
}

onward_status onward_engine_stats(onward_engine engine, onward_stats* stats) {
  return guarded([&] {
    const std::shared_ptr<EngineHandle> handle = capi::find(engine);
    require_pointer("stats", stats);
    const EngineStats core = handle->client().alone({}, [](Engine& e) { return e.stats(); });
    onward_stats found{};
    found.steps = core.steps;
    found.prefill_tokens = core.prefill_tokens;
    found.decode_tokens = core.decode_tokens;
    found.kv_computations = core.kv_computations;
    found.running = core.running;
    found.waiting = core.waiting;
    found.preempted = core.preempted;
    found.cache_blocks_in_use = core.cache_blocks_in_use;
    found.cache_bytes = core.cache_bytes;
    found.cache_bytes_reserved = core.cache_bytes_reserved;
    found.prefix_tokens = core.prefix_tokens;
    found.prefix_hits = core.prefixes.hits;
    capi::write_struct("stats", found, stats);
  });
}

onward_status onward_engine_set_trace(onward_engine engine, onward_trace trace, void* context) {
  return guarded([&] {
    const std::shared_ptr<EngineHandle> handle = capi::find(engine);
    SharedEngine::Trace pass;
    if (trace != nullptr) {
      pass = [trace, context](const StepTrace& step) {
        const onward_step_trace passed = to_c(step);
        trace(context, &passed);
      };
    }
    handle->client().set_trace(std::move(pass), {});
  });
}
