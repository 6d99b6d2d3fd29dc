// A regular file mapped read-only into memory, its pages shared with all processes that map it.
// Knows nothing of what is in it.
//
// A file that another program shortens while it is mapped ends in SIGBUS on any system when a page
// beyond its new end is looked at; nothing here guards against that. Replacing a file (rename) is
// safe: the mapping goes on with the old one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace onward {

class MappedFile {
 public:
  // IoError where it cannot be opened or mapped, or is no regular file. Touches no page.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& name() const { return name_; }  // the path's last part, fit for a message
  uint64_t bytes() const { return bytes_; }
  const uint8_t* data() const { return data_; }
  // Bytes of the file by a read: one that was shortened meanwhile is an IoError.
  std::string read(uint64_t begin, size_t bytes) const;

 private:
  std::string name_;
  uint64_t bytes_ = 0;
  int descriptor_ = -1;
  const uint8_t* data_ = nullptr;
};

// Text of a file for a message: printable ASCII, cut.
std::string printable(const std::string& text, size_t at_most = 100);

}  // namespace onward
