// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). A draw is a pure function of (seed, stream, step). It depends neither on the
// batch nor on the device.
#pragma once

#include <array>
#include <cstdint>

namespace onward {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A uniform number in [0, 1) with 53 random bits. A block has two such numbers: lanes 0 and 1.
double philox_uniform(uint64_t seed, uint64_t stream, uint64_t step, int lane = 0);

}  // namespace onward
