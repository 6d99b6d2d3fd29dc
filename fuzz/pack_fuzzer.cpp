// A libFuzzer target that gives bytes to open_pack as a file. The result must be a model or an
// error of onward. All weights of a model are read, so that a weight outside the file is detected.
// In this build the checksums of texts are not compared (pack/pack.cpp), because no mutation would
// pass them.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"
#include "cpu/weight_store.h"
#include "pack/pack.h"

namespace {

// The file is in memory, because a disk would be the slowest part.
int the_file() {
  static const int descriptor = memfd_create("pack", 0);
  if (descriptor < 0) std::abort();
  return descriptor;
}

void write_file(const uint8_t* data, size_t size) {
  if (ftruncate(the_file(), 0) != 0) std::abort();
  for (size_t done = 0; done < size;) {
    const ssize_t count = pwrite(the_file(), data + done, size - done, static_cast<off_t>(done));
    if (count <= 0) std::abort();
    done += static_cast<size_t>(count);
  }
}

volatile uint8_t sink;

void read_weights(const onward::Model& model) {
  uint8_t all = 0;
  for (const onward::NamedWeight& weight : model.weights) {
    const onward::PackedBytes packed = weight.matrix.empty() ? model.store->packed(weight.vector)
                                                             : model.store->packed(weight.matrix);
    const uint8_t* bytes = static_cast<const uint8_t*>(packed.data);
    for (size_t i = 0; i < packed.bytes; ++i) all ^= bytes[i];
  }
  sink = all;
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

// Most mutations change the header and update its length. Otherwise nearly all inputs would be
// rejected at the first eight bytes.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  uint64_t header = 0;
  if (size > 8) std::memcpy(&header, data, 8);
  if (seed % 4 == 0 || size <= 8 || header > size - 8) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  const std::string rest(data + 8 + header, data + size);
  if (8 + header + rest.size() + 128 > max_size) return LLVMFuzzerMutate(data, size, max_size);
  size_t length = LLVMFuzzerMutate(data + 8, header, max_size - 8 - rest.size() - 64);
  while ((8 + length) % 64 != 0) data[8 + length++] = ' ';
  header = length;
  std::memcpy(data, &header, 8);
  std::memcpy(data + 8 + length, rest.data(), rest.size());
  return 8 + length + rest.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  // The last byte selects the options, so that the rest of the input is a whole pack.
  const onward::PackOptions options{(data[size - 1] & 1) != 0, (data[size - 1] & 2) != 0, {}};
  write_file(data, size - 1);
  const std::string path = "/proc/self/fd/" + std::to_string(the_file());
  try {
    const onward::Pack pack = onward::open_pack(path, onward::cpu::make_weight_store(1), options);
    read_weights(*pack.model);
  } catch (const onward::PackError&) {
  } catch (const onward::IoError&) {
  }
  return 0;
}
