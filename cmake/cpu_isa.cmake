# The sources of the CPU kernels and the compiler flags of each instruction set. Sets
# ONWARD_CPU_SOURCES, and ONWARD_BASE_FLAGS for code that runs on every CPU. Include it from the
# directory that adds the library, because source properties do not reach other directories. A file
# for another CPU family, or whose flags the compiler does not have, compiles to an accessor that
# returns null.

include(CheckCXXCompilerFlag)

set(ONWARD_CPU_SOURCES
    csrc/cpu/select.cpp
    csrc/cpu/isa/generic.cpp
    csrc/cpu/isa/avx2.cpp
    csrc/cpu/isa/avx2vnni.cpp
    csrc/cpu/isa/avx512.cpp
    csrc/cpu/isa/avx512vnni.cpp
    csrc/cpu/isa/avx512bf16.cpp
    csrc/cpu/isa/neon.cpp
    csrc/cpu/isa/neondot.cpp)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  # Every supported CPU has SSE4.2 and popcnt (since about 2009). This flag comes after the user's
  # own flags, so that a -march=native does not affect files that run on every CPU.
  check_cxx_compiler_flag(-march=x86-64-v2 ONWARD_HAS_X86_64_V2)
  if(ONWARD_HAS_X86_64_V2)
    set(ONWARD_BASE_FLAGS -march=x86-64-v2)
  endif()
  set(ONWARD_AVX2_FLAGS -mavx2 -mfma -mf16c)
  set(ONWARD_AVX512_FLAGS ${ONWARD_AVX2_FLAGS} -mavx512f -mavx512bw -mavx512dq -mavx512vl)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # The AVX-512 headers of gcc before 13 leave some registers uninitialised on purpose, and warn.
    list(APPEND ONWARD_AVX512_FLAGS -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  check_cxx_compiler_flag(-mavx2 ONWARD_HAS_AVX2)
  check_cxx_compiler_flag(-mavx512f ONWARD_HAS_AVX512)
  check_cxx_compiler_flag(-mavxvnni ONWARD_HAS_AVXVNNI)
  check_cxx_compiler_flag(-mavx512vnni ONWARD_HAS_AVX512VNNI)
  check_cxx_compiler_flag(-mavx512bf16 ONWARD_HAS_AVX512BF16)
  if(ONWARD_HAS_AVX2)
    set_source_files_properties(
      csrc/cpu/isa/avx2.cpp PROPERTIES COMPILE_OPTIONS "${ONWARD_AVX2_FLAGS}")
  endif()
  if(ONWARD_HAS_AVX2 AND ONWARD_HAS_AVXVNNI)
    set_source_files_properties(
      csrc/cpu/isa/avx2vnni.cpp PROPERTIES COMPILE_OPTIONS "${ONWARD_AVX2_FLAGS};-mavxvnni")
  endif()
  if(ONWARD_HAS_AVX512)
    set_source_files_properties(
      csrc/cpu/isa/avx512.cpp PROPERTIES COMPILE_OPTIONS "${ONWARD_AVX512_FLAGS}")
  endif()
  if(ONWARD_HAS_AVX512 AND ONWARD_HAS_AVX512VNNI)
    set_source_files_properties(
      csrc/cpu/isa/avx512vnni.cpp
      PROPERTIES COMPILE_OPTIONS "${ONWARD_AVX512_FLAGS};-mavx512vnni")
  endif()
  if(ONWARD_HAS_AVX512 AND ONWARD_HAS_AVX512VNNI AND ONWARD_HAS_AVX512BF16)
    set_source_files_properties(
      csrc/cpu/isa/avx512bf16.cpp
      PROPERTIES COMPILE_OPTIONS "${ONWARD_AVX512_FLAGS};-mavx512vnni;-mavx512bf16")
  endif()
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  set(ONWARD_NEONDOT_FLAGS -march=armv8.2-a+dotprod)
  check_cxx_compiler_flag(${ONWARD_NEONDOT_FLAGS} ONWARD_HAS_NEONDOT)
  if(ONWARD_HAS_NEONDOT)
    set_source_files_properties(
      csrc/cpu/isa/neondot.cpp PROPERTIES COMPILE_OPTIONS "${ONWARD_NEONDOT_FLAGS}")
  endif()
endif()
