// The parts of the extension module, each in a file of its own.
#pragma once

#include <pybind11/numpy.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cpu/kernels.h"
#include "engine/request.h"

void bind_device(pybind11::module_& m);
void bind_model(pybind11::module_& m);
void bind_requests(pybind11::module_& m);
void bind_events(pybind11::module_& m);
void bind_engine(pybind11::module_& m);
void bind_observing(pybind11::module_& m);
void bind_kernels(pybind11::module_& m);
// Adds to the submodule `kernels`.
void bind_linear(pybind11::module_& kernels);
void bind_scans(pybind11::module_& kernels);
void bind_sampling(pybind11::module_& kernels);
void bind_attend(pybind11::module_& kernels);
void bind_codes(pybind11::module_& kernels);
void bind_verbs(pybind11::module_& kernels);

// With the GIL.
pybind11::object to_python(const onward::Event& event);

// The kernels of an instruction set that this machine can run; InvalidArgument for any other.
const onward::cpu::Kernels& kernels_of(const std::string& isa);

// InvalidArgument where an array of another shape was given to the submodule.
void expect_shape(const char* name, const pybind11::array& array,
                  const std::vector<int64_t>& shape);
