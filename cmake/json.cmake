# Finds the headers of nlohmann/json: ONWARD_JSON_INCLUDE_DIR. The headers in the Python that builds
# (the wheel nlohmann-json, which pip installs) have priority over the headers of the system. Only
# the sources in ONWARD_JSON_SOURCES use them.
set(ONWARD_JSON_SOURCES
  csrc/pack/contents.cpp
  csrc/pack/format.cpp
  csrc/pack/json_text.cpp)

if(NOT ONWARD_JSON_INCLUDE_DIR)
  if(SKBUILD)
    find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)
    execute_process(
      COMMAND ${Python_EXECUTABLE} -c "import nlohmann_json; print(nlohmann_json.__path__[0])"
      OUTPUT_VARIABLE ONWARD_JSON_WHEEL OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(ONWARD_JSON_WHEEL AND EXISTS "${ONWARD_JSON_WHEEL}/include/nlohmann/json.hpp")
      set(ONWARD_JSON_INCLUDE_DIR "${ONWARD_JSON_WHEEL}/include")
    endif()
  endif()
  if(NOT ONWARD_JSON_INCLUDE_DIR)
    find_package(nlohmann_json 3.9 QUIET)
    if(nlohmann_json_FOUND)
      get_target_property(ONWARD_JSON_INCLUDE_DIR
        nlohmann_json::nlohmann_json INTERFACE_INCLUDE_DIRECTORIES)
      list(REMOVE_DUPLICATES ONWARD_JSON_INCLUDE_DIR)
    endif()
  endif()
endif()
if(NOT ONWARD_JSON_INCLUDE_DIR)
  message(FATAL_ERROR "nlohmann/json (headers) was not found, expected one of: pip install "
    "nlohmann-json in the Python that builds, apt-get install nlohmann-json3-dev, or "
    "-DONWARD_JSON_INCLUDE_DIR=the folder that holds nlohmann/json.hpp")
endif()
message(STATUS "nlohmann/json: ${ONWARD_JSON_INCLUDE_DIR}")
