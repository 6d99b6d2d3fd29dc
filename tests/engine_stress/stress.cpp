// Threads that use one shared engine in every way at once, for ThreadSanitizer: whole answers and
// streams, interrupts, cancellations, closings, traces, and turns held as for a fork. Every answer is
// checked. The argument is the duration in seconds. Built with the stand-in engine beside it
// (scripts/sanitize.sh).
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/engine_client.h"

using namespace onward;  // NOLINT: a program

onward::SamplingOptions::SamplingOptions() = default;  // its own file needs the samplers

namespace {

constexpr int kTokens = 20;

struct Given {};  // thrown by an interrupt

std::atomic<bool> over{false};
std::atomic<int> wrong{0}, answers{0}, interrupted{0}, closed{0};

Request ask(int64_t tokens, bool gather) {
  Request request;
  request.prompt = {1};
  request.max_new_tokens = tokens;
  request.gather = gather;
  return request;
}

// Two requests of a client: all tokens in order, and no event after the end.
void answer(const std::shared_ptr<SharedEngine>& engine, bool gather) {
  while (!over) {
    EngineClient client(engine);
    std::vector<Request> requests;
    for (int i = 0; i < 2; ++i) requests.push_back(ask(kTokens, gather));
    const std::vector<int64_t> ids = client.submit(std::move(requests), {});
    int32_t last[2] = {0, 0};
    for (int ended = 0; ended < 2;) {
      std::optional<Event> arrived = client.arrived_event();
      const Event event = arrived ? std::move(*arrived) : client.next_event({});
      int32_t& token = last[event.request == ids[1]];
      if (!gather && event.token != token + 1) ++wrong;
      token = event.token;
      ended += event.ends_request;
    }
    if (last[0] != kTokens || last[1] != kTokens) ++wrong;
    ++answers;
  }
}

// A client that is interrupted at random while it computes or waits, and that cancels.
void interrupt(const std::shared_ptr<SharedEngine>& engine, unsigned seed) {
  std::mt19937 random(seed);
  Interrupts ends{[&random] {
    if (random() % 20 == 0) throw Given();
  }};
  ends.interval = std::chrono::milliseconds(1);
  while (!over) {
    try {
      EngineClient client(engine);
      const int64_t id = client.submit(ask(1000, random() % 2 == 0), ends);
      if (random() % 2 == 0) {
        client.cancel(id, 0);
      } else {
        client.next_event(ends);
      }
      client.cancel(id);
    } catch (const Given&) {
      ++interrupted;
    }
  }
}

// The client that two threads use and a third one closes.
struct Common {
  std::mutex mutex;
  std::shared_ptr<EngineClient> client;
};

void use_common(Common& common) {
  while (!over) {
    std::shared_ptr<EngineClient> client;
    {
      const std::lock_guard<std::mutex> lock(common.mutex);
      client = common.client;
    }
    try {
      client->submit(ask(5, false), {});
      client->step({}, 1);
      client->wait_for_step();
    } catch (const Closed&) {
      ++closed;
    }
  }
}

void close_common(const std::shared_ptr<SharedEngine>& engine, Common& common) {
  while (!over) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    auto client = std::make_shared<EngineClient>(engine);
    {
      const std::lock_guard<std::mutex> lock(common.mutex);
      std::swap(common.client, client);
    }
    client->close();
  }
}

void work_between_steps(const std::shared_ptr<SharedEngine>& engine) {
  EngineClient client(engine);
  int traced = 0;
  while (!over) {
    client.set_trace([&traced](const StepTrace&) { ++traced; }, {});
    if (client.alone({}, [](Engine& e) { return e.stats().steps; }) < 0) ++wrong;
    if (engine->hold_for_fork(SharedEngine::Clock::now() + std::chrono::seconds(20))) {
      engine->lock_for_fork();
      engine->release_after_fork();
    } else {
      ++wrong;
    }
    engine->nudge();
    client.set_trace(nullptr, {});
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int seconds = argc > 1 ? std::atoi(argv[1]) : 10;
  auto engine = std::make_shared<SharedEngine>(nullptr, nullptr, EngineOptions());
  Common common;
  common.client = std::make_shared<EngineClient>(engine);
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) threads.emplace_back([&, i] { answer(engine, i % 2 == 1); });
  for (unsigned i = 0; i < 2; ++i) threads.emplace_back([&, i] { interrupt(engine, i); });
  for (int i = 0; i < 2; ++i) threads.emplace_back([&] { use_common(common); });
  threads.emplace_back([&] { close_common(engine, common); });
  threads.emplace_back([&] { work_between_steps(engine); });
  std::this_thread::sleep_for(std::chrono::seconds(seconds));
  over = true;
  for (std::thread& thread : threads) thread.join();
  common.client.reset();
  const auto running = [](Engine& e) { return static_cast<int>(e.stats().running); };
  const int left = EngineClient(engine).alone({}, running);
  std::printf("answers %d, interrupted %d, closed %d, wrong %d, still running %d\n", answers.load(),
              interrupted.load(), closed.load(), wrong.load(), left);
  return wrong != 0 || left != 0 || answers == 0 ? 1 : 0;
}
