#include "capi/handles.h"

#include <pthread.h>

#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/error.h"

namespace onward::capi {
namespace {

struct Entry {
  std::shared_ptr<const Pack> pack;  // one of the two is null
  std::shared_ptr<EngineHandle> engine;
};

struct Registry {
  std::mutex mutex;
  std::unordered_map<uintptr_t, Entry> entries;
  uintptr_t opened = 0;
};

// Never destroyed: threads may outlive main.
Registry& registry() {
  static Registry* const all = [] {
    // Held during a fork, so that the child's registry is neither locked nor half changed.
    pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                   [] { registry().mutex.unlock(); });
    return new Registry;
  }();
  return *all;
}

std::atomic<InterruptWord*> words{nullptr};

InterruptWord* take_word() {
  for (InterruptWord* word = words.load(); word != nullptr; word = word->next) {
    uintptr_t free = 0;
    if (word->handle.compare_exchange_strong(free, 1)) return word;  // 1 is no handle
  }
  auto* word = new InterruptWord;
  word->handle.store(1);
  word->next = words.load();
  while (!words.compare_exchange_weak(word->next, word)) {
  }
  return word;
}

// Odd and large, so that an aligned pointer or a small number is never a handle by chance.
uintptr_t next_value(Registry& all) { return 0x6f6e7701u + 2 * all.opened++; }

uintptr_t add(Entry entry) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const uintptr_t value = next_value(all);
  all.entries.emplace(value, std::move(entry));
  return value;
}

template <typename T>
std::shared_ptr<T> look_up(const char* kind, uintptr_t value, std::shared_ptr<T> Entry::* member,
                           bool close) {
  Registry& all = registry();
  std::shared_ptr<T> found;
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto entry = all.entries.find(value);
    if (entry != all.entries.end()) found = entry->second.*member;
    if (found && close) all.entries.erase(entry);
  }
  if (!found) {
    throw Closed(std::string(kind) + ": the handle is " +
                 (value == 0 ? "null" : "closed, or none") + ", expected an open " + kind);
  }
  return found;
}

uintptr_t value_of(const void* handle) { return reinterpret_cast<uintptr_t>(handle); }

}  // namespace

EngineHandle::EngineHandle(std::shared_ptr<SharedEngine> engine, std::shared_ptr<const Pack> pack)
    : client_(std::move(engine)), pack_(std::move(pack)), word_(take_word()) {}

EngineHandle::~EngineHandle() { word_->handle.store(0); }

SharedEngine::Poll EngineHandle::poll() {
  return [this] {
    uintptr_t wanted = value_;
    if (word_->wanted.load(std::memory_order_relaxed) == wanted &&
        word_->wanted.compare_exchange_strong(wanted, 0)) {
      throw Interrupted();
    }
    if (client_.closed()) throw Closed("engine: was closed meanwhile, expected an open one");
  };
}

onward_model open_handle(std::shared_ptr<const Pack> pack) {
  return reinterpret_cast<onward_model>(add({std::move(pack), nullptr}));
}

onward_engine open_handle(std::shared_ptr<EngineHandle> engine) {
  EngineHandle& opened = *engine;
  opened.value_ = add({nullptr, std::move(engine)});
  opened.word_->handle.store(opened.value_);
  return reinterpret_cast<onward_engine>(opened.value_);
}

std::shared_ptr<const Pack> find(onward_model handle) {
  return look_up("model", value_of(handle), &Entry::pack, false);
}

std::shared_ptr<EngineHandle> find(onward_engine handle) {
  return look_up("engine", value_of(handle), &Entry::engine, false);
}

std::shared_ptr<const Pack> take(onward_model handle) {
  return look_up("model", value_of(handle), &Entry::pack, true);
}

std::shared_ptr<EngineHandle> take(onward_engine handle) {
  return look_up("engine", value_of(handle), &Entry::engine, true);
}

bool interrupt(onward_engine handle) noexcept {
  const uintptr_t value = value_of(handle);
  if (value <= 1) return false;
  for (InterruptWord* word = words.load(); word != nullptr; word = word->next) {
    if (word->handle.load() != value) continue;
    word->wanted.store(value);
    return true;
  }
  return false;
}

}  // namespace onward::capi
