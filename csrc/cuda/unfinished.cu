// Verbs that are still to be written; this file goes when they are.
#include "cuda/verbs.h"
namespace onward::cuda {
DevicePeaks measure_peaks(Stream&, double) { return {}; }
}  // namespace onward::cuda
