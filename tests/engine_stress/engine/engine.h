// A stand-in for csrc/engine/engine.h that computes nothing: each step gives each request one token.
// Its members are not atomic, so two threads inside it at once are a data race.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"
#include "engine/request.h"
#include "model/decoder.h"

namespace onward {

struct EngineOptions {};

class Engine {
 public:
  Engine(std::shared_ptr<const Model>, std::unique_ptr<Backend>, const EngineOptions&,
         std::shared_ptr<const Model> = nullptr) {}

  int64_t submit(Request request) {
    running_.push_back({next_, request.max_new_tokens, 0, request.gather});
    return next_++;
  }

  std::vector<Event> step(const Decoder::Poll& poll) {
    if (poll) poll();
    ++steps_;
    std::vector<Event> events;
    for (Running& each : running_) {
      const bool ends = ++each.done == each.tokens;
      if (each.gathers && !ends) continue;
      Event event;
      event.request = each.id;
      event.token = static_cast<int32_t>(each.done);
      event.ends_request = ends;
      events.push_back(std::move(event));
    }
    remove([](const Running& each) { return each.done == each.tokens; });
    return events;
  }

  void cancel(int64_t request) {
    remove([request](const Running& each) { return each.id == request; });
  }
  bool cancel(int64_t request, int64_t) {
    cancel(request);
    return true;
  }
  void cancel_all() { running_.clear(); }

  EngineStats stats() const {
    EngineStats stats;
    stats.steps = steps_;
    stats.running = static_cast<int64_t>(running_.size());
    return stats;
  }
  bool idle() const { return running_.empty(); }

 private:
  struct Running {
    int64_t id;
    int64_t tokens;
    int64_t done;
    bool gathers;
  };
  template <typename Matches>
  void remove(const Matches& matches) {
    running_.erase(std::remove_if(running_.begin(), running_.end(), matches), running_.end());
  }

  std::vector<Running> running_;
  int64_t next_ = 0;
  int64_t steps_ = 0;
};

}  // namespace onward
