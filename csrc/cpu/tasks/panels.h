// Writes and reads the layout of packed panels (cpu/linear_args.h).
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "cpu/kernels.h"
#include "formats/sources.h"

namespace onward::cpu {

// The version of packed bytes in files. Raise it with every change of the bytes that pack_panel
// writes for the same sources, rounding included, or of the padding of parts and vectors. The bytes
// do not depend on the instruction set.
constexpr int kPackedLayout = 2;

// Writes outputs [first, first + width) of a matrix as one panel. outputs: (width).
void pack_panel(const Matrix& matrix, int64_t first, int64_t width, const OutputSource* outputs);

// One output's weights as floats. out: (matrix.inputs)
void read_output(const Matrix& matrix, int64_t output, float* out);

// The first output of the panel that holds an output, and the number of columns of a panel.
inline int64_t panel_of(int64_t output) { return output / kPanelColumns * kPanelColumns; }
int64_t panel_width(const Matrix& matrix, int64_t first);
char* panel_data(const Matrix& matrix, int64_t first);

}  // namespace onward::cpu
