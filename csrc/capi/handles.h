// Handles: numbers that stand for models and engines, each used once in a process. A lookup returns
// a shared pointer, so another thread can close the handle during a call.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/engine_client.h"
#include "onward/onward_c.h"
#include "pack/pack.h"

namespace onward::capi {

// Set by onward_engine_interrupt, without a lock. Never freed, because signal handlers may run
// late.
struct InterruptWord {
  std::atomic<uintptr_t> handle{0};  // the owner; 0: free
  std::atomic<uintptr_t> wanted{0};  // the handle to interrupt
  InterruptWord* next = nullptr;
};

class EngineHandle {
 public:
  // pack: the engine's model and its vocabulary.
  EngineHandle(std::shared_ptr<SharedEngine> engine, std::shared_ptr<const Pack> pack);
  ~EngineHandle();
  EngineHandle(const EngineHandle&) = delete;
  EngineHandle& operator=(const EngineHandle&) = delete;

  EngineClient& client() { return client_; }
  const Engine& engine() const { return client_.shared()->engine(); }
  const std::shared_ptr<const Pack>& pack() const { return pack_; }

  // Polled by calls that wait or compute. Throws Closed, and Interrupted once for each interrupt.
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

// Throws Closed for a handle that is null, closed, of another kind or foreign.
std::shared_ptr<const Pack> find(onward_model handle);
std::shared_ptr<EngineHandle> find(onward_engine handle);
// The same, and closes the handle.
std::shared_ptr<const Pack> take(onward_model handle);
std::shared_ptr<EngineHandle> take(onward_engine handle);

// May be called from a signal handler. Returns false if there is no such engine.
bool interrupt(onward_engine handle) noexcept;

}  // namespace onward::capi
