#!/usr/bin/env bash
# Runs tests of the core under a sanitizer or valgrind. Each builds the core into a folder of its own
# under build/, and a finding fails the run.
#
#   scripts/sanitize.sh address      AddressSanitizer and UndefinedBehaviorSanitizer: core tests
#   scripts/sanitize.sh thread       ThreadSanitizer: tests of the shared engine and its clients
#   scripts/sanitize.sh stress       Both sanitizers: many threads at a shared engine that computes
#                                    nothing; builds a few files only
#   scripts/sanitize.sh valgrind     valgrind memcheck: the C example
#
# Further arguments go to pytest in place of the default tests. PYTHON: the interpreter, with the
# `test` extra installed (default: .venv/bin/python). GCC, CMake and Ninja are needed; ccache is used
# where it is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-.venv/bin/python}
kind=${1:-}
shift || true

core_tests=(
  tests/python/test_engine_clients.py tests/core/test_shared_engine.py tests/core/test_shared_engine_threads.py
  tests/core/test_scheduling.py tests/core/test_beam_engine.py tests/core/test_speculation.py
  tests/core/test_prefix_reuse.py tests/core/test_gathered.py tests/core/test_rules.py tests/core/test_batching.py
  tests/native/test_c_api.py
)
thread_tests=(
  tests/python/test_engine_clients.py tests/python/test_engine_turns.py
  tests/core/test_shared_engine.py tests/core/test_shared_engine_threads.py
)

# Builds the core with the flags $1 and the instruction sets $2..., into a copy of the package.
build() {
  local flags=$1 tree=build/$kind launcher=()
  shift
  command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  cmake -S . -B "$tree" -G Ninja -DSKBUILD=2 -DCMAKE_BUILD_TYPE=None "${launcher[@]}" \
    -DCMAKE_CXX_FLAGS="$flags" -DPython_EXECUTABLE="$(command -v "$PYTHON")" \
    -Dpybind11_DIR="$("$PYTHON" -m pybind11 --cmakedir)" "$@" ${CMAKE_ARGS:-}
  cmake --build "$tree" --parallel "${JOBS:-$(nproc)}"
  package=$PWD/$tree/package
  rm -rf "$package"
  mkdir -p "$package"
  cmake --install "$tree" --prefix "$package/onward" >/dev/null
  local file
  for file in python/onward/*; do
    [ -e "$package/onward/$(basename "$file")" ] || ln -s "$PWD/$file" "$package/onward/"
  done
}

# pytest with the sanitizer's library $1 loaded before Python.
tests() {
  local library
  library=$(g++ -print-file-name="$1")
  shift
  PYTHONPATH=$package LD_PRELOAD=$library PYTHONMALLOC=malloc ONWARD_HUB_OFFLINE=1 \
    "$PYTHON" -m pytest -q -p no:cacheprovider --timeout 1800 "$@"
}

generic=(-DONWARD_HAS_AVX2=OFF -DONWARD_HAS_AVX512=OFF)
case $kind in
  address)
    [ $# -gt 0 ] || set -- "${core_tests[@]}"
    build "-O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all" \
      -DONWARD_HAS_AVX512=OFF
    # Python keeps memory until the process ends, so leaks are not looked for here.
    ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1 \
      tests libasan.so "$@"
    ;;
  thread)
    # A child of a process with several threads may not start threads under this sanitizer.
    [ $# -gt 0 ] || set -- "${thread_tests[@]}" -k "not fork and not Fork and not child"
    build "-O1 -g1 -fsanitize=thread" "${generic[@]}"
    TSAN_OPTIONS="halt_on_error=1:abort_on_error=1:second_deadlock_stack=1" tests libtsan.so "$@"
    ;;
  stress)
    mkdir -p build/stress
    for flags in thread address,undefined; do
      g++ -std=c++20 -O1 -g1 -pthread "-fsanitize=$flags" -fno-sanitize-recover=all \
        -Itests/engine_stress -Icsrc -Icsrc/include tests/engine_stress/stress.cpp \
        csrc/engine/{turn_queue,shared_engine,engine_client}.cpp csrc/base/{error,fork_count}.cpp \
        -o build/stress/stress
      TSAN_OPTIONS=halt_on_error=1 build/stress/stress "${1:-15}"
    done
    ;;
  valgrind)
    exec "$PYTHON" -m pytest -q -p no:cacheprovider -m "slow or not slow" \
      tests/native/test_native_examples.py -k "valgrind" "$@"
    ;;
  *)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
    exit 2
    ;;
esac
