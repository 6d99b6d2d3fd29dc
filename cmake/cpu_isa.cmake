# The CPU kernel sources and the flags that each is compiled with. Sets ONWARD_CPU_SOURCES, and
# ONWARD_BASE_FLAGS for all code that runs everywhere. Include it from the directory that adds the
# library: source properties do not reach other directories. A file whose flags the compiler lacks,
# or that is for another processor family, compiles to accessors that return null.

include(CheckCXXCompilerFlag)

set(ONWARD_CPU_SOURCES csrc/cpu/select.cpp)

# onward_isa(family flags file...): the files of csrc/cpu/isa/family, compiled with these flags, or
# without any if the compiler lacks one of them.
function(onward_isa family flags)
  list(TRANSFORM ARGN PREPEND csrc/cpu/isa/${family}/)
  set(ONWARD_CPU_SOURCES ${ONWARD_CPU_SOURCES} ${ARGN} PARENT_SCOPE)
  foreach(flag IN LISTS flags)
    string(MAKE_C_IDENTIFIER "ONWARD_HAS${flag}" has_flag)
    check_cxx_compiler_flag(${flag} ${has_flag})
    if(NOT ${has_flag})
      return()
    endif()
  endforeach()
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "${flags}")
endfunction()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  # Every processor that is supported has SSE4.2 and popcnt (since about 2009). The flag comes after
  # the builder's own flags, so that a -march=native does not reach files that run everywhere.
  check_cxx_compiler_flag(-march=x86-64-v2 ONWARD_HAS_X86_64_V2)
  if(ONWARD_HAS_X86_64_V2)
    set(ONWARD_BASE_FLAGS -march=x86-64-v2)
  endif()
  set(ONWARD_AVX2_FLAGS -mavx2 -mfma -mf16c)
  set(ONWARD_AVXVNNI_FLAGS -mavxvnni)
  set(ONWARD_AVX512_FLAGS ${ONWARD_AVX2_FLAGS} -mavx512f -mavx512bw -mavx512dq -mavx512vl)
  set(ONWARD_AVX512VNNI_FLAGS -mavx512vnni)
  set(ONWARD_AVX512BF16_FLAGS -mavx512bf16)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # The AVX-512 headers of gcc before 13 start some registers undefined on purpose, and warn.
    list(APPEND ONWARD_AVX512_FLAGS -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  set(ONWARD_NEONDOT_FLAGS -march=armv8.2-a+dotprod)
endif()

# Largest file first, so that it does not run alone at the end of a build. Without flags for its
# family a file is nearly empty.
onward_isa(avx512 "${ONWARD_AVX512_FLAGS}" pair_bytes.cpp floats.cpp)
onward_isa(avx512 "${ONWARD_AVX512_FLAGS};${ONWARD_AVX512VNNI_FLAGS}" vnni_bytes.cpp)
onward_isa(avx512 "${ONWARD_AVX512_FLAGS};${ONWARD_AVX512BF16_FLAGS}" native_bf16.cpp)
onward_isa(avx2 "${ONWARD_AVX2_FLAGS}" pair_bytes.cpp floats.cpp)
onward_isa(avx2 "${ONWARD_AVX2_FLAGS};${ONWARD_AVXVNNI_FLAGS}" vnni_bytes.cpp)
onward_isa(neon "" floats.cpp widening_bytes.cpp)
onward_isa(neon "${ONWARD_NEONDOT_FLAGS}" dot_bytes.cpp)
onward_isa(generic "" floats.cpp bytes.cpp)
