// A regular file, mapped read-only. All processes that map it share its pages.
//
// If another program shortens the file while it is mapped, an access to a page beyond the new end
// raises SIGBUS, on every system. This class does not prevent that.
// Replacing the file by a rename is safe: the mapping keeps the old file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace onward {

class MappedFile {
 public:
  // Reads no page. Throws IoError if it cannot be opened or mapped, or is not a regular file.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& name() const { return name_; }  // last part of the path, for messages
  uint64_t bytes() const { return bytes_; }
  const uint8_t* data() const { return data_; }
  // Reads bytes of the file with read(). Throws IoError if the file has been shortened.
  std::string read(uint64_t begin, size_t bytes) const;

 private:
  std::string name_;
  uint64_t bytes_ = 0;
  int descriptor_ = -1;
  const uint8_t* data_ = nullptr;
};

// A text of a file for a message: only printable ASCII, cut after `at_most` characters.
std::string printable(const std::string& text, size_t at_most = 100);

}  // namespace onward
