// numpy arrays in the functions of this module, and checks of their shapes. Each check throws
// InvalidArgument that names the array, what was found and what was expected.
#pragma once

#include <pybind11/numpy.h>

#include <cstdint>
#include <string>
#include <vector>

#include "backend/cache_layout.h"
#include "base/dtype.h"
#include "cpu/kernels.h"

using Floats = pybind11::array_t<float, pybind11::array::c_style>;
using Bytes = pybind11::array_t<uint8_t, pybind11::array::c_style>;
using Halves = pybind11::array_t<uint16_t, pybind11::array::c_style>;
using IdArray = pybind11::array_t<int32_t, pybind11::array::c_style>;

void expect_shape(const char* name, const pybind11::array& array,
                  const std::vector<int64_t>& shape);
// No dimension may be 0.
void expect_dimensions(const char* name, const pybind11::array& array, pybind11::ssize_t count);
// Keys or values: contiguous, and of the same dtype as the keys.
void expect_alike(const char* name, const pybind11::array& array, const pybind11::array& keys);

// The dtype that an array of keys stands for: float32, float16, or uint16 for bf16.
onward::DType stored_dtype(const pybind11::array& keys);

// (rows, n) -> rows of `width`, filled up with zeros.
std::vector<float> padded_rows(const Floats& rows, int64_t width);
// Rows of `width` -> (rows, columns).
Floats cut_rows(const float* padded, int64_t rows, int64_t width, int64_t columns);

// The kernels of an instruction set that this machine can run.
const onward::cpu::Kernels& kernels_of(const std::string& isa);

// A cache of `layers` layers that all see the same tokens.
onward::CacheLayout cache_layout(int64_t layers, int64_t kv_heads, int64_t head_dim,
                                 onward::DType dtype, const std::string& key_codec,
                                 const std::string& value_codec);
