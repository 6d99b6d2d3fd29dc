#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace onward {
namespace {

IoError failed(const std::string& name, const char* what) {
  return IoError(name + ": cannot " + what + ": " + std::strerror(errno));
}

}  // namespace

MappedFile::MappedFile(const std::string& path)
    : name_(printable(path.substr(path.find_last_of('/') + 1))) {
  // Non-blocking, because opening a named pipe would block.
  descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) throw failed(name_, "open");
  try {
    struct stat status = {};
    if (fstat(descriptor_, &status) != 0) throw failed(name_, "look at");
    if (!S_ISREG(status.st_mode)) throw IoError(name_ + ": is not a regular file");
    bytes_ = static_cast<uint64_t>(status.st_size);
    if (bytes_ == 0) return;
    void* mapped = mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, descriptor_, 0);
    if (mapped == MAP_FAILED) throw failed(name_, "map");
    data_ = static_cast<const uint8_t*>(mapped);
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), bytes_);
  close(descriptor_);
}

std::string MappedFile::read(uint64_t begin, size_t bytes) const {
  std::string text(bytes, '\0');
  size_t done = 0;
  while (done < bytes) {
    const ssize_t count =
        pread(descriptor_, text.data() + done, bytes - done, static_cast<off_t>(begin + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw failed(name_, "read");
    if (count == 0) throw IoError(name_ + ": ended while it was read");
    done += static_cast<size_t>(count);
  }
  return text;
}

std::string printable(const std::string& text, size_t at_most) {
  std::string shown = text.size() <= at_most ? text : text.substr(0, at_most - 3) + "...";
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return shown;
}

}  // namespace onward
