// Chooses the table of kernels that this machine runs, by asking the processor and its operating
// system.
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include "cpu/select.h"

#include <cstdlib>

#include "base/error.h"

namespace onward::cpu {
namespace {

struct Candidate {
  const char* name;
  const Kernels* kernels;  // null where the compiler could not target it
  bool runs;               // the processor has the instructions and the system saves the registers
};

#if defined(__x86_64__)
// __builtin_cpu_supports looks at XCR0 as well: false where the system does not save the registers.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}
// Leaf 7, subleaf 1, EAX bit 4. gcc 12 has no name for it; its registers are those of AVX2.
bool has_avx2vnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return has_avx2() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1) != 0;
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
bool has_avx512vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }
bool has_avx512bf16() { return has_avx512vnni() && __builtin_cpu_supports("avx512bf16"); }
bool has_neon() { return false; }
bool has_neondot() { return false; }
#else
bool has_avx2() { return false; }
bool has_avx2vnni() { return false; }
bool has_avx512() { return false; }
bool has_avx512vnni() { return false; }
bool has_avx512bf16() { return false; }
#if defined(__aarch64__)
bool has_neon() { return true; }
#else
bool has_neon() { return false; }
#endif
#if defined(__aarch64__) && defined(__linux__)
bool has_neondot() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
#elif defined(__aarch64__) && defined(__APPLE__)
bool has_neondot() { return true; }  // as every Mac with an Arm processor has had
#else
bool has_neondot() { return false; }
#endif
#endif

// Slowest first.
const std::vector<Candidate>& candidates() {
  static const std::vector<Candidate> all = {
      {"generic", generic_kernels(), true},
      {"neon", neon_kernels(), has_neon()},
      {"neondot", neondot_kernels(), has_neondot()},
      {"avx2", avx2_kernels(), has_avx2()},
      {"avx2vnni", avx2vnni_kernels(), has_avx2vnni()},
      {"avx512", avx512_kernels(), has_avx512()},
      {"avx512vnni", avx512vnni_kernels(), has_avx512vnni()},
      {"avx512bf16", avx512bf16_kernels(), has_avx512bf16()},
  };
  return all;
}

bool available(const Candidate& candidate) {
  return candidate.kernels != nullptr && candidate.runs;
}

std::string join_available() {
  std::string joined;
  for (const std::string& name : available_names()) {
    if (!joined.empty()) joined += ',';
    joined += name;
  }
  return joined;
}

}  // namespace

std::vector<std::string> available_names() {
  std::vector<std::string> names;
  for (const Candidate& candidate : candidates()) {
    if (available(candidate)) names.emplace_back(candidate.name);
  }
  return names;
}

const Kernels& kernels_named(const char* where, const std::string& name) {
  const std::string found = "found '" + name + "', expected one of " + available_kernels();
  for (const Candidate& candidate : candidates()) {
    if (name != candidate.name) continue;
    if (available(candidate)) return *candidate.kernels;
    throw InvalidArgument(std::string(where) + ": this processor cannot run it, " + found);
  }
  throw InvalidArgument(std::string(where) + ": unknown instruction set, " + found);
}

const Kernels& select_kernels() {
  const char* name = std::getenv("ONWARD_CPU_ISA");
  if (name != nullptr && *name != '\0') return kernels_named("ONWARD_CPU_ISA", name);
  const Kernels* best = nullptr;
  for (const Candidate& candidate : candidates()) {
    if (available(candidate)) best = candidate.kernels;
  }
  return *best;
}

const char* available_kernels() {
  static const std::string names = join_available();
  return names.c_str();
}

}  // namespace onward::cpu

// Chosen once: reading the environment at every token would race with who changes it, and the bits
// are the same whichever it is.
const onward::RowScans& onward::row_scans() {
  static const RowScans& scans = cpu::select_kernels().scans;
  return scans;
}
