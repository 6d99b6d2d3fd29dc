// The layout of packed panels (cpu/kernels.h, LinearArgs), written and read. Knows nothing of files
// or threads.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "cpu/kernels.h"
#include "formats/sources.h"

namespace onward::cpu {

// The layout of packed bytes as files keep them: raise it with every change of what pack_panel
// writes for the same sources, rounding included, or of how parts and vectors are padded. The
// instruction set does not enter.
constexpr int kPackedLayout = 2;

// Writes outputs [first, first + width) of a matrix as one panel. outputs: (width).
void pack_panel(const Matrix& matrix, int64_t first, int64_t width, const OutputSource* outputs);

// One output's weights as floats. out: (matrix.inputs)
void read_output(const Matrix& matrix, int64_t output, float* out);

// The panel that holds an output, and how many columns it has.
inline int64_t panel_of(int64_t output) { return output / kPanelColumns * kPanelColumns; }
int64_t panel_width(const Matrix& matrix, int64_t first);
char* panel_data(const Matrix& matrix, int64_t first);

}  // namespace onward::cpu
