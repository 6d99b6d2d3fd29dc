#include "bindings/python_engine.h"

#include <algorithm>

#include "base/error.h"

namespace onward {
namespace {

constexpr const char* kCallClosed = "call: was closed by another thread, expected an open one";
constexpr const char* kEngineClosed = "LLM: was closed, expected an open one";

// Guarded by the interpreter lock.
std::vector<std::weak_ptr<SharedEngine>>& known_engines() {
  static auto* const known = new std::vector<std::weak_ptr<SharedEngine>>;  // outlives all engines
  return *known;
}

void remember(const std::shared_ptr<SharedEngine>& engine) {
  auto& known = known_engines();
  known.erase(std::remove_if(known.begin(), known.end(), [](const auto& e) { return e.expired(); }),
              known.end());
  known.push_back(engine);
}

}  // namespace

std::vector<std::shared_ptr<SharedEngine>> engines_of_python() {
  std::vector<std::shared_ptr<SharedEngine>> engines;
  for (const auto& known : known_engines()) {
    if (auto engine = known.lock()) engines.push_back(std::move(engine));
  }
  return engines;
}

PyClient::PyClient(std::shared_ptr<SharedEngine> engine, std::shared_ptr<ClientList> list)
    : list_(std::move(list)) {
  outside([&] { client_ = std::make_shared<EngineClient>(std::move(engine)); });
  list_->insert(this);
}

PyClient::~PyClient() {
  close();
  list_->erase(this);
}

std::shared_ptr<EngineClient> PyClient::core() const {
  if (!client_) throw Closed(closed_);
  return client_;
}

std::vector<int64_t> PyClient::submit(std::vector<Request> requests) {
  std::shared_ptr<EngineClient> client = core();
  const Interrupts ends = interrupts();
  return outside([&] {
    const std::shared_ptr<EngineClient> here = std::move(client);
    return here->submit(std::move(requests), ends);
  });
}

Event PyClient::next_event() {
  std::shared_ptr<EngineClient> client = core();
  if (std::optional<Event> event = client->arrived_event()) return std::move(*event);
  const Interrupts ends = interrupts();
  return outside([&] {
    const std::shared_ptr<EngineClient> here = std::move(client);
    return here->next_event(ends);
  });
}

std::vector<Event> PyClient::step() {
  std::shared_ptr<EngineClient> client = core();
  const Interrupts ends = interrupts();
  return outside([&] {
    const std::shared_ptr<EngineClient> here = std::move(client);
    return here->step(ends);
  });
}

void PyClient::cancel(int64_t request, std::optional<int64_t> sequence) {
  std::shared_ptr<EngineClient> client = client_;
  if (!client) return;
  outside([&] {
    const std::shared_ptr<EngineClient> here = std::move(client);
    sequence ? here->cancel(request, *sequence) : here->cancel(request);
  });
}

std::shared_ptr<EngineClient> PyClient::let_go(const char* reason) {
  if (client_) closed_ = reason;
  return std::exchange(client_, nullptr);
}

void PyClient::close() {
  std::shared_ptr<EngineClient> client = let_go(kCallClosed);
  if (!client) return;
  outside([&] {
    client->close(kCallClosed);
    client.reset();
  });
}

PyEngine::PyEngine(std::shared_ptr<SharedEngine> engine)
    : list_(std::make_shared<ClientList>()), own_(engine, list_) {
  remember(engine);
}

std::unique_ptr<PyClient> PyEngine::new_client() const {
  return std::make_unique<PyClient>(shared(), list_);
}

void PyEngine::close() {
  std::vector<std::shared_ptr<EngineClient>> closing;
  for (PyClient* client : *list_) {
    if (auto core = client->let_go(kEngineClosed)) closing.push_back(std::move(core));
  }
  outside([&] {
    for (const auto& client : closing) client->close(kEngineClosed);
    closing.clear();
  });
}

}  // namespace onward
