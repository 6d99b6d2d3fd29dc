// Counts the forks above this process. Threads of the parent do not exist in the child, so locks
// that they held and work that they did must be set up again.
#pragma once

namespace onward {

// The value changes in a forked child and never in the parent. The first call starts the count.
unsigned fork_count();

}  // namespace onward
