// The verbs as host functions; each launches the kernels of one file. All pointers are device
// pointers, except in the shape of a Matrix.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "cuda/gpu/runtime.h"
#include "cuda/kernels/step.h"

namespace onward::cuda {

// x[r] = table row ids[r]. x is (rows, inputs).
void embed(Stream& stream, const Matrix& table, const int32_t* ids, int64_t rows, float* x);
// y[r] = x[index[r]] for rows of `width` floats.
void gather_rows(Stream& stream, const float* x, const int64_t* index, int64_t rows, int64_t width,
                 float* y);

// The rows of a product in the layout that the weights need (tiles.h); plain rows for f32.
struct PreparedRows {
  const void* values = nullptr;
  const float* scales = nullptr;  // for quantised weights
  const int32_t* sums = nullptr;
};
// The bytes of scratch memory that `prepare` needs.
int64_t prepared_bytes(const Matrix& weight, int64_t rows);
// Normalises the rows if `input` has a norm, rounds them and converts their layout. The result is
// in `scratch`, or is the input itself if nothing has to change.
PreparedRows prepare(Stream& stream, const Matrix& weight, const LinearInput& input, int64_t rows,
                     void* scratch);

// y = norm(input). y is (rows, stride of input) and may be input.x.
void normalise(Stream& stream, const LinearInput& input, int64_t rows, float* y);

// y = rows W^T + bias, or y += rows W^T + bias. y is (rows, outputs).
struct Product {
  const Matrix* weight = nullptr;
  const float* bias = nullptr;
  PreparedRows x;
  int64_t rows = 0;
  bool add = false;
  float* y = nullptr;
};
void multiply_f32(Stream& stream, const Product& product);
void multiply_halves(Stream& stream, const Product& product);  // bf16, f16
void multiply_groups(Stream& stream, const Product& product);  // q8_0, q4_0, q4_1

// y = silu(gate) * up. The input is (rows, 2 width), y is (rows, width).
void gate(Stream& stream, const float* gate_up, int64_t rows, int64_t width, float* y);

void rotate_and_append(Stream& stream, const RotateArgs& args, const LayerCache& cache,
                       const StepView& step);

// Encodes the part of one layer of the blocks, which are on the device (step_tables.h).
void encode(Stream& stream, const LayerCache& cache, const BlockEncoding* blocks, int64_t count);

// Attention in the CPU's order of operations (cpu/kernels.h), for every cache without codes.
int64_t attend_exact_scratch(const AttendLayerArgs& args, const LayerCache& cache,
                             const StepView& step, int processors);
void attend_exact(Stream& stream, const AttendLayerArgs& args, const LayerCache& cache,
                  const StepView& step, void* scratch);

// The same for rows that may see codes or sinks.
bool sees_units(const LayerCache& cache);
int64_t attend_codes_scratch(const AttendLayerArgs& args, const LayerCache& cache,
                             const StepView& step, int processors);
void attend_codes(Stream& stream, const AttendLayerArgs& args, const LayerCache& cache,
                  const StepView& step, void* scratch);

// Attention on tensor cores, for caches of 16 bits and some head sizes. Queries and softmax weights
// are split into two halves, so only keys and values are rounded.
bool attends_in_tiles(const LayerCache& cache);
int64_t attend_tiles_scratch(const AttendLayerArgs& args, const LayerCache& cache,
                             const StepView& step, int processors);
void attend_tiles(Stream& stream, const AttendLayerArgs& args, const LayerCache& cache,
                  const StepView& step, void* scratch);

// A RowSampling (backend/row_sampling.h) whose lists are on the device.
struct SampledRow {
  RowOptions options;
  const TokenBias* biases = nullptr;
  const SeenToken* seen = nullptr;
  const int32_t* banned = nullptr;
  int32_t num_biases = 0;
  int32_t num_seen = 0;
  int32_t num_banned = 0;
};
// choices[i] is the choice of rows[i] from logits (rows, stride). scores (count, vocab_size) is
// scratch memory.
void sample_rows(Stream& stream, const float* logits, int64_t stride, int64_t vocab_size,
                 const SampledRow* rows, int64_t count, float* scores, RowChoice* choices);

// Measures the limits of this device.
DevicePeaks measure_peaks(Stream& stream, double seconds);

}  // namespace onward::cuda
