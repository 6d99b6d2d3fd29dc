// The parts of the extension module. Each file binds one of them.
#pragma once

#include <pybind11/numpy.h>

#include <cstdint>
#include <vector>

#include "engine/request.h"

void bind_cache(pybind11::module_& m);
void bind_device(pybind11::module_& m);
void bind_spec(pybind11::module_& m);
void bind_model(pybind11::module_& m);
void bind_requests(pybind11::module_& m);
void bind_events(pybind11::module_& m);
void bind_client(pybind11::module_& m);
void bind_engine(pybind11::module_& m);
void bind_process(pybind11::module_& m);
void bind_observing(pybind11::module_& m);
void bind_kernels(pybind11::module_& m);

using TokenIds = pybind11::array_t<int32_t, pybind11::array::c_style>;
// InvalidArgument unless it has one dimension.
std::vector<int32_t> to_vector(const TokenIds& ids);

// The caller holds the GIL.
pybind11::object to_python(const onward::Event& event);
