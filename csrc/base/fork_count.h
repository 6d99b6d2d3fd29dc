// How often this process is the child of a fork: what threads held or did in the parent is not done
// in the child.
#pragma once

namespace onward {

// Changes in a forked child, and never in the parent. The first call begins the count.
unsigned fork_count();

}  // namespace onward
