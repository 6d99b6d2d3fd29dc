// Handles: numbers that stand for models and engines, each used once in a process. Whoever looks
// one up shares in what it stands for, so that closing it in another thread pulls nothing away.
// Knows what handles stand for; not what is done with it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/shared_engine.h"
#include "onward/onward_c.h"
#include "pack/pack.h"

namespace onward::capi {

// Set by onward_engine_interrupt, without a lock. Never freed, as signal handlers may come late.
struct InterruptWord {
  std::atomic<uintptr_t> handle{0};  // whose it is; 0: free
  std::atomic<uintptr_t> wanted{0};  // the handle that is to be interrupted
  InterruptWord* next = nullptr;
};

class EngineHandle {
 public:
  // pack: the engine's model, and what is known of its vocabulary.
  EngineHandle(std::shared_ptr<SharedEngine> engine, std::shared_ptr<const Pack> pack);
  ~EngineHandle();
  EngineHandle(const EngineHandle&) = delete;
  EngineHandle& operator=(const EngineHandle&) = delete;

  EngineClient& client() { return client_; }
  const Engine& engine() const { return client_.shared()->engine(); }
  const std::shared_ptr<const Pack>& pack() const { return pack_; }

  // For everything that waits or computes: throws Interrupted, once for each interrupt, and Closed.
  SharedEngine::Poll poll();

 private:
  friend onward_engine open_handle(std::shared_ptr<EngineHandle> engine);

  EngineClient client_;
  std::shared_ptr<const Pack> pack_;
  InterruptWord* word_;
  uintptr_t value_ = 0;
};

onward_model open_handle(std::shared_ptr<const Pack> pack);
onward_engine open_handle(std::shared_ptr<EngineHandle> engine);

// Closed for what is null, closed, of another kind or none of ours.
std::shared_ptr<const Pack> find(onward_model handle);
std::shared_ptr<EngineHandle> find(onward_engine handle);
// The same, and the handle is closed.
std::shared_ptr<const Pack> take(onward_model handle);
std::shared_ptr<EngineHandle> take(onward_engine handle);

// Fit for a signal handler. False where there is no such engine.
bool interrupt(onward_engine handle) noexcept;

}  // namespace onward::capi
