# The options of the CUDA device library, and the search for nvcc. The places in order:
# -DCMAKE_CUDA_COMPILER or CUDACXX; PATH; CUDA_PATH or CUDA_HOME; the packages from PyPI in the
# Python that builds (nvidia-cuda-nvcc, nvidia-cuda-crt, nvidia-cuda-runtime, nvidia-nvvm);
# /usr/local/cuda. Include this file before the first target: CMake 3.25 loses the flags of targets
# that exist before the language is enabled.

option(ONWARD_CUDA "Build libonward_cuda.so, for NVIDIA GPUs (nvcc)" OFF)
option(ONWARD_CUDA_HOST "Build libonward_cuda_host.so: the CUDA kernels for the CPU, for tests" OFF)
# Read the environment each time, because a build folder does not store it.
if("$ENV{ONWARD_CUDA}")
  set(ONWARD_CUDA ON)
endif()

if(ONWARD_CUDA)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    if(ONWARD_NVCC AND NOT EXISTS "${ONWARD_NVCC}")
      unset(ONWARD_NVCC CACHE)  # the environment with this nvcc does not exist any more
    endif()
    find_program(ONWARD_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATH_SUFFIXES bin
      NO_CMAKE_SYSTEM_PATH)
    if(NOT ONWARD_NVCC)
      # The packages put their files into one folder for each version of CUDA, such as nvidia/cu13.
      # In an isolated build environment of pip, Python does not import the packages that are
      # installed outside it, so their folders are searched, too.
      if(SKBUILD)
        find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)
      else()
        find_package(Python QUIET COMPONENTS Interpreter)
      endif()
      set(ONWARD_ASK_PYTHON [[
import importlib.util, pathlib, sysconfig
spec = importlib.util.find_spec("nvidia")
places = list(spec.submodule_search_locations) if spec else []
places += [sysconfig.get_path(name) + "/nvidia" for name in ("purelib", "platlib")]
found = [str(p) for place in places for p in sorted(pathlib.Path(place).glob("cu[0-9]*/bin/nvcc"))]
print(found[-1] if found else "", end="")
]])
      if(Python_Interpreter_FOUND)
        execute_process(COMMAND ${Python_EXECUTABLE} -c "${ONWARD_ASK_PYTHON}"
          OUTPUT_VARIABLE ONWARD_NVCC_OF_PYTHON ERROR_QUIET)
      endif()
      if(ONWARD_NVCC_OF_PYTHON)
        set(ONWARD_NVCC ${ONWARD_NVCC_OF_PYTHON} CACHE FILEPATH "nvcc" FORCE)
      else()
        find_program(ONWARD_NVCC nvcc PATHS /usr/local/cuda/bin NO_DEFAULT_PATH)
      endif()
    endif()
    if(NOT ONWARD_NVCC)
      message(FATAL_ERROR "ONWARD_CUDA: no nvcc was found in PATH, in CUDA_PATH, in the Python that "
        "builds (${Python_EXECUTABLE}) or in /usr/local/cuda, expected one of: an installed CUDA "
        "toolkit (CUDACXX=the path of its nvcc), or pip install nvidia-cuda-nvcc nvidia-cuda-crt "
        "nvidia-cuda-runtime nvidia-nvvm in that Python")
    endif()
    set(CMAKE_CUDA_COMPILER ${ONWARD_NVCC})
  endif()
  # The objects of nvcc are linked with the objects of the C++ compiler.
  if(NOT CMAKE_CUDA_HOST_COMPILER AND NOT DEFINED ENV{CUDAHOSTCXX})
    set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  endif()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    # Ampere, Hopper and Blackwell, and PTX for later GPUs, as far as this nvcc supports them.
    set(ONWARD_ASKED_NVCC ${CMAKE_CUDA_COMPILER})
    if(NOT ONWARD_ASKED_NVCC)
      set(ONWARD_ASKED_NVCC $ENV{CUDACXX})
    endif()
    execute_process(COMMAND ${ONWARD_ASKED_NVCC} --list-gpu-arch
      OUTPUT_VARIABLE ONWARD_KNOWN RESULT_VARIABLE ONWARD_FAILED ERROR_VARIABLE ONWARD_SAID)
    if(ONWARD_FAILED)
      message(FATAL_ERROR "ONWARD_CUDA: ${ONWARD_ASKED_NVCC} --list-gpu-arch: ${ONWARD_FAILED} "
        "${ONWARD_SAID}, expected an nvcc of CUDA 12.0 or later")
    endif()
    foreach(ONWARD_ARCHITECTURE 80 90 100)
      if(ONWARD_KNOWN MATCHES "compute_${ONWARD_ARCHITECTURE}(\n|$)")
        list(APPEND CMAKE_CUDA_ARCHITECTURES ${ONWARD_ARCHITECTURE}-real)
        set(ONWARD_NEWEST ${ONWARD_ARCHITECTURE})
      endif()
    endforeach()
    list(APPEND CMAKE_CUDA_ARCHITECTURES ${ONWARD_NEWEST}-virtual)
  endif()
  enable_language(CUDA)
  # CMake 3.25 does not know that nvcc supports C++20.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER}, ${CMAKE_CUDA_COMPILER_VERSION}, architectures "
    "${CMAKE_CUDA_ARCHITECTURES}")
endif()
