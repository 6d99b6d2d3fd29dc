// The Python objects of a shared engine and its clients. The interpreter lock guards their members.
// It is released for every call that computes or waits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "bindings/interpreter.h"
#include "engine/engine_client.h"

namespace onward {

class PyClient;

// The clients that one engine object has made. Closing it closes them.
using ClientList = std::unordered_set<PyClient*>;

class PyClient {
 public:
  PyClient(std::shared_ptr<SharedEngine> engine, std::shared_ptr<ClientList> list);
  ~PyClient();
  PyClient(const PyClient&) = delete;
  PyClient& operator=(const PyClient&) = delete;

  std::vector<int64_t> submit(std::vector<Request> requests);
  Event next_event();
  std::vector<Event> step();
  void cancel(int64_t request, std::optional<int64_t> sequence);
  void close();

  // Returns the core's client. Closed: this client or its engine was closed.
  std::shared_ptr<EngineClient> core() const;
  // Closes with a reason and returns the core's client, to be destroyed without the lock.
  std::shared_ptr<EngineClient> let_go(const char* reason);

 private:
  std::shared_ptr<EngineClient> client_;
  std::shared_ptr<ClientList> list_;
  const char* closed_ = nullptr;  // the reason
};

// An engine that Python has made. It has a client of its own and makes others.
class PyEngine {
 public:
  explicit PyEngine(std::shared_ptr<SharedEngine> engine);

  PyClient& client() { return own_; }
  std::unique_ptr<PyClient> new_client() const;
  // Runs body(engine, interrupts) between two steps.
  template <typename Body>
  auto alone(const Body& body) const {
    const Interrupts ends = interrupts();
    std::shared_ptr<EngineClient> client = own_.core();
    return outside([&] {
      // Destroyed without the lock, because it may be the last owner of the engine.
      const std::shared_ptr<EngineClient> here = std::move(client);
      return here->alone(ends, [&](Engine& engine) { return body(engine, ends.computing); });
    });
  }
  // Closes the engine and all of its clients, now or after the current step. Does not wait.
  void close();

  // For values that never change.
  std::shared_ptr<SharedEngine> shared() const { return own_.core()->shared(); }

 private:
  std::shared_ptr<ClientList> list_;
  PyClient own_;
};

// The engines that Python has made and that still exist.
std::vector<std::shared_ptr<SharedEngine>> engines_of_python();

}  // namespace onward
