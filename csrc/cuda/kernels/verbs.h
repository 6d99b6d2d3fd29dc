// The kernels as functions of the host, one file each: what is launched, on which rows. All
// pointers but those of a Matrix's shape are the device's.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "cuda/gpu/runtime.h"
#include "cuda/kernels/step.h"

namespace onward::cuda {

// x[r] = table row ids[r]. (rows, inputs)
void embed(Stream& stream, const Matrix& table, const int32_t* ids, int64_t rows, float* x);
// y[r] = x[index[r]], rows of `width` floats.
void gather_rows(Stream& stream, const float* x, const int64_t* index, int64_t rows, int64_t width,
                 float* y);

// The rows of a product as the weights want them (tiles.h); for f32 plain rows.
struct PreparedRows {
  const void* values = nullptr;
  const float* scales = nullptr;  // quantised weights
  const int32_t* sums = nullptr;
};
// Bytes of scratch that `prepare` needs.
int64_t prepared_bytes(const Matrix& weight, int64_t rows);
// Normalises where `input` says so, rounds, and lays out; `scratch` holds the result, unless the
// rows can be taken as they are.
PreparedRows prepare(Stream& stream, const Matrix& weight, const LinearInput& input, int64_t rows,
                     void* scratch);

// y (rows, outputs) = rows W^T + bias, or added to.
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

// y = silu(gate) * up of (rows, 2 width); y (rows, width).
void gate(Stream& stream, const float* gate_up, int64_t rows, int64_t width, float* y);

void rotate_and_append(Stream& stream, const RotateArgs& args, const LayerCache& cache,
                       const StepView& step);

// Codes one layer's part of the blocks, which are on the device (step_tables.h).
void encode(Stream& stream, const LayerCache& cache, const BlockEncoding* blocks, int64_t count);

// Attention in the processor's order of operations (cpu/kernels.h), for any cache without codes.
int64_t attend_exact_scratch(const AttendLayerArgs& args, const LayerCache& cache,
                             const StepView& step, int processors);
void attend_exact(Stream& stream, const AttendLayerArgs& args, const LayerCache& cache,
                  const StepView& step, void* scratch);

// The same where rows may see codes or sinks.
bool sees_units(const LayerCache& cache);
int64_t attend_codes_scratch(const AttendLayerArgs& args, const LayerCache& cache,
                             const StepView& step, int processors);
void attend_codes(Stream& stream, const AttendLayerArgs& args, const LayerCache& cache,
                  const StepView& step, void* scratch);

// The same on tensor cores, for caches of 16 bits: with queries and weights in two halves each, so
// that only keys and values are rounded. Not for every head_dim.
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
// choices[i] is what rows[i] chooses from logits (rows, stride). scores (count, vocab_size) is
// scratch.
void sample_rows(Stream& stream, const float* logits, int64_t stride, int64_t vocab_size,
                 const SampledRow* rows, int64_t count, float* scores, RowChoice* choices);

// What this device can do at most.
DevicePeaks measure_peaks(Stream& stream, double seconds);

}  // namespace onward::cuda
