#include "cpu/probe.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "base/error.h"

namespace onward::cpu {
namespace {

using Clock = std::chrono::steady_clock;

// Repeats work(thread), which returns the units done, on every thread; returns units per second.
double rate(int threads, double seconds, const std::function<int64_t(int)>& work) {
  std::vector<int64_t> units(static_cast<size_t>(threads));
  const Clock::time_point begin = Clock::now();
  const auto run = [&](int thread) {
    do {
      units[static_cast<size_t>(thread)] += work(thread);
    } while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds);
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(run, thread);
  run(0);
  for (std::thread& thread : others) thread.join();
  const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
  int64_t total = 0;
  for (const int64_t count : units) total += count;
  return static_cast<double>(total) / elapsed;
}

}  // namespace

double probe(const Kernels& kernels, const std::string& kind, double seconds, int threads) {
  if (threads < 1 || threads > 1024 || !(seconds > 0.0 && seconds <= 60.0)) {
    throw InvalidArgument("kernels: probe with " + std::to_string(threads) + " threads for " +
                          std::to_string(seconds) +
                          " seconds, expected 1 to 1024 threads and at most 60 seconds");
  }
  // Each thread adds to its own element, so that the compiler cannot drop the work.
  std::vector<uint64_t> sinks(static_cast<size_t>(threads));
  if (kind == "read") {
    // More than a thread's share of any last-level cache. Each thread reads its own part.
    constexpr int64_t kBytes = int64_t{256} << 20;
    const std::vector<uint64_t> data(kBytes / sizeof(uint64_t), 1);
    const int64_t part = kBytes / threads / 256 * 256;
    return 1e-9 * rate(threads, seconds, [&](int thread) {
             const char* bytes = reinterpret_cast<const char*>(data.data()) + thread * part;
             sinks[static_cast<size_t>(thread)] += kernels.probe_read(bytes, part);
             return part;
           });
  }
  const auto arithmetic = kind == "f32"    ? kernels.probe_f32
                          : kind == "bf16" ? kernels.probe_bf16
                          : kind == "int8" ? kernels.probe_int8
                                           : nullptr;
  if (arithmetic == nullptr) {
    throw InvalidArgument("kernels: unknown probe, found '" + kind +
                          "', expected one of read, f32, bf16, int8");
  }
  return 1e-9 * rate(threads, seconds, [&](int thread) {
           float sink = 0.0f;
           const int64_t operations = arithmetic(100000, &sink);
           sinks[static_cast<size_t>(thread)] += static_cast<uint64_t>(static_cast<int64_t>(sink));
           return operations;
         });
}

}  // namespace onward::cpu
