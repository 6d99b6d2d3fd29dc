// Rotary angles of the positions in a step. A position's angles depend on that position alone, so
// a key in the cache never has to be rotated again.
#pragma once

#include <cstdint>
#include <vector>

#include "model/decoder_spec.h"

namespace onward {

// Appends cos and sin of one position, head_dim / 2 values each, times the attention factor.
void append_rope(const RopeSpec& rope, int64_t position, std::vector<float>& cosines,
                 std::vector<float>& sines);

// Appends cos and sin of the rotation from position `from` to position `to`, head_dim / 2 values
// each, without the attention factor. Not for dynamic scaling.
void append_turn(const RopeSpec& rope, int64_t from, int64_t to, std::vector<float>& cosines,
                 std::vector<float>& sines);

}  // namespace onward
