// Puts the tables of kernels together, and chooses the one that this machine runs by asking the
// processor and its operating system.
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include <cstdlib>

#include "base/error.h"
#include "cpu/isa/avx2/parts.h"
#include "cpu/isa/avx512/parts.h"
#include "cpu/isa/generic/parts.h"
#include "cpu/isa/neon/parts.h"
#include "cpu/select.h"

namespace onward::cpu {
namespace {

// A table of kernels for one instruction set, put together from parts. It is available if the
// compiler could target all parts, the processor has the instructions and the system saves the
// registers.
struct Candidate {
  Candidate(const char* name, bool runs, const FloatKernels* floats, const Bf16Kernels* bf16,
            const ByteKernels* bytes)
      : name(name), available(runs && floats != nullptr && bf16 != nullptr && bytes != nullptr) {
    if (available) kernels = {*floats, *bf16, *bytes, name};
  }
  const char* name;
  bool available;
  Kernels kernels = {};
};

#if defined(__x86_64__)
// __builtin_cpu_supports also reads XCR0: it is false where the system does not save the registers.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}
// Leaf 7, subleaf 1, EAX bit 4. gcc 12 has no name for it. It uses the registers of AVX2.
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
bool has_neondot() { return true; }  // every Mac with an Arm processor has it
#else
bool has_neondot() { return false; }
#endif
#endif

// Each table and its parts. Slowest first.
const std::vector<Candidate>& candidates() {
  static const std::vector<Candidate> all = {
      {"generic", true, generic::float_kernels(), generic::bf16_kernels(), generic::byte_kernels()},
      {"neon", has_neon(), neon::float_kernels(), neon::bf16_kernels(),
       neon::widening_byte_kernels()},
      {"neondot", has_neondot(), neon::float_kernels(), neon::bf16_kernels(),
       neon::dot_byte_kernels()},
      {"avx2", has_avx2(), avx2::float_kernels(), avx2::bf16_kernels(), avx2::pair_byte_kernels()},
      {"avx2vnni", has_avx2vnni(), avx2::float_kernels(), avx2::bf16_kernels(),
       avx2::vnni_byte_kernels()},
      {"avx512", has_avx512(), avx512::float_kernels(), avx512::widened_bf16_kernels(),
       avx512::pair_byte_kernels()},
      {"avx512vnni", has_avx512vnni(), avx512::float_kernels(), avx512::widened_bf16_kernels(),
       avx512::vnni_byte_kernels()},
      {"avx512bf16", has_avx512bf16(), avx512::float_kernels(), avx512::native_bf16_kernels(),
       avx512::vnni_byte_kernels()},
  };
  return all;
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
    if (candidate.available) names.emplace_back(candidate.name);
  }
  return names;
}

const Kernels& kernels_named(const char* where, const std::string& name) {
  const std::string found = "found '" + name + "', expected one of " + available_kernels();
  for (const Candidate& candidate : candidates()) {
    if (name != candidate.name) continue;
    if (candidate.available) return candidate.kernels;
    throw InvalidArgument(std::string(where) + ": this processor cannot run it, " + found);
  }
  throw InvalidArgument(std::string(where) + ": unknown instruction set, " + found);
}

const Kernels& select_kernels() {
  const char* name = std::getenv("ONWARD_CPU_ISA");
  if (name != nullptr && *name != '\0') return kernels_named("ONWARD_CPU_ISA", name);
  const Kernels* best = nullptr;
  for (const Candidate& candidate : candidates()) {
    if (candidate.available) best = &candidate.kernels;
  }
  return *best;
}

const char* available_kernels() {
  static const std::string names = join_available();
  return names.c_str();
}

}  // namespace onward::cpu

// Chosen once: reading the environment at every token would race with a thread that changes it. The
// bits are the same for every choice.
const onward::RowScans& onward::row_scans() {
  static const RowScans& scans = cpu::select_kernels().scans;
  return scans;
}
