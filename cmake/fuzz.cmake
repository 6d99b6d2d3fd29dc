# Fuzzers (-DONWARD_FUZZ=ON, with clang). Compiles the needed parts of the core again, with the
# coverage of libFuzzer and the address and undefined behaviour sanitizers. Every finding is fatal.
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "ONWARD_FUZZ: the compiler is ${CMAKE_CXX_COMPILER_ID}, expected clang: "
    "-DCMAKE_CXX_COMPILER=clang++")
endif()
get_target_property(ONWARD_SOURCES onward SOURCES)
list(FILTER ONWARD_SOURCES INCLUDE REGEX
  "csrc/(base|pack)/|csrc/model/(model|decoder_spec)[.]|csrc/cpu/(weight_|tasks/panels)|csrc/formats/")
add_executable(pack_fuzzer EXCLUDE_FROM_ALL fuzz/pack_fuzzer.cpp ${ONWARD_SOURCES})
target_include_directories(pack_fuzzer PRIVATE csrc csrc/include)
target_compile_definitions(pack_fuzzer PRIVATE FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION)
target_compile_options(pack_fuzzer PRIVATE
  -O1 -g -ffp-contract=off -fno-omit-frame-pointer
  -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all)
target_link_options(pack_fuzzer PRIVATE -fsanitize=fuzzer,address,undefined)
target_link_libraries(pack_fuzzer PRIVATE Threads::Threads)
