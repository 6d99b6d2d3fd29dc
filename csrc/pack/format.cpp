#include "pack/format.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "pack/checksum.h"
#include "pack/json_text.h"

namespace onward {
namespace {

constexpr std::string_view kPaddingPrefix = "padding.";

struct NamedRange {
  std::string name;
  TensorRange range;
};

// The file's bytes of a tensor; the header has offsets within the data.
TensorRange read_range(const Json& entry, const std::string& where, uint64_t data_begin,
                       uint64_t data_bytes) {
  ObjectReader reader(entry, where);
  TensorRange range;
  const std::string dtype = reader.text("dtype");
  if (dtype != "U8" && dtype != "F32") {
    throw PackError(where + ": has dtype '" + printable(dtype, 20) + "', expected U8 or F32");
  }
  range.numbers = dtype == "F32";
  const Json& offsets = reader.array("data_offsets");
  const Json& shape = reader.array("shape");
  reader.finish();
  if (offsets.size() != 2) refuse(where + ".data_offsets", offsets, "two integers");
  if (shape.size() != 1) refuse(where + ".shape", shape, "one dimension");
  const int64_t begin = as_integer(offsets[0], where + ".data_offsets");
  const int64_t end = as_integer(offsets[1], where + ".data_offsets");
  const int64_t count = as_integer(shape[0], where + ".shape");
  if (begin < 0 || end < begin || static_cast<uint64_t>(end) > data_bytes) {
    throw PackError(where + ": has bytes " + std::to_string(begin) + ".." + std::to_string(end) +
                    ", expected them within the " + std::to_string(data_bytes) +
                    " of the data: the file is cut short or damaged");
  }
  const uint64_t bytes = static_cast<uint64_t>(end - begin);
  const uint64_t item = range.numbers ? 4 : 1;
  if (bytes % item != 0 || count < 0 || static_cast<uint64_t>(count) != bytes / item) {
    throw PackError(where + ": has shape (" + std::to_string(count) + ") and " +
                    std::to_string(bytes) + " bytes, expected one of " + dtype);
  }
  range.begin = data_begin + static_cast<uint64_t>(begin);
  range.end = data_begin + static_cast<uint64_t>(end);
  return range;
}

// Tensors must fill the data from its beginning to its end without a gap.
void check_order(std::vector<NamedRange>& ranges, const std::string& where, uint64_t data_begin,
                 uint64_t file_bytes) {
  std::sort(ranges.begin(), ranges.end(), [](const NamedRange& a, const NamedRange& b) {
    return std::pair(a.range.begin, a.range.end) < std::pair(b.range.begin, b.range.end);
  });
  uint64_t at = data_begin;
  for (const auto& [name, range] : ranges) {
    if (range.begin != at) {
      throw PackError(where + ": tensor '" + printable(name) + "' begins at byte " +
                      std::to_string(range.begin) + ", expected " + std::to_string(at) +
                      " where the one before it ends");
    }
    const bool padding = name.starts_with(kPaddingPrefix);
    if (!padding && range.begin % kPackAlignment != 0) {
      throw PackError(where + ": tensor '" + printable(name) + "' begins at byte " +
                      std::to_string(range.begin) + ", expected a multiple of " +
                      std::to_string(kPackAlignment));
    }
    at = range.end;
  }
  if (at != file_bytes) {
    throw PackError(where + ": has " + std::to_string(file_bytes) + " bytes, expected " +
                    std::to_string(at) + " by its header");
  }
}

std::map<std::string, std::string> read_metadata(Json& object, const std::string& where) {
  const auto found = object.find("__metadata__");
  if (found == object.end()) {
    throw PackError(where + ": has no metadata, expected a pack: onward pack MODEL -o FILE.onward");
  }
  if (!found->is_object()) refuse(where + ": __metadata__", *found, "an object");
  std::map<std::string, std::string> metadata;
  for (auto& [name, value] : found->items()) {
    if (!value.is_string()) {
      refuse(where + ": metadata '" + printable(name) + "'", value, "a string");
    }
    metadata.emplace(name, std::move(value.get_ref<std::string&>()));
  }
  object.erase(found);
  return metadata;
}

// The first bytes of other kinds of files that a failed clone or download leaves under a pack's name.
// python/onward/files/contents.py has the same kinds for other files.
struct OtherContent {
  std::string_view start;
  const char* meaning;
};
constexpr const char* kHtml =
    "an HTML page, which a failed download leaves; download the file again";
constexpr const char* kPickle =
    "a pickle or a zip archive, as PyTorch writes them; expected a pack: "
    "onward pack MODEL -o FILE.onward";
constexpr OtherContent kOtherContents[] = {
    {"version https://git-lfs.github.com/spec/",
     "a git-lfs pointer, not the file itself; fetch it with: git lfs pull"},
    {"<!doctype html", kHtml},
    {"<html", kHtml},
    {"<head", kHtml},
    {"\x1f\x8b", "a gzip archive; unpack it first"},
    {"\xfd" "7zXZ", "an xz archive; unpack it first"},
    {"\x28\xb5\x2f\xfd", "a zstandard archive; unpack it first"},
    {"BZh", "a bzip2 archive; unpack it first"},
    {"PK\x03\x04", kPickle},
    {"\x80\x02", kPickle},
    {"\x80\x03", kPickle},
    {"\x80\x04", kPickle},
    {"\x80\x05", kPickle},
    {"GGUF", "a GGUF file; give it a name that ends in .gguf"},
};

bool begins(std::string_view text, std::string_view lower_start) {
  if (text.size() < lower_start.size()) return false;
  return std::equal(lower_start.begin(), lower_start.end(), text.begin(), [](char a, char b) {
    return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b - 'A' + 'a') : b) || a == b;
  });
}

// PackError for a file of another kind.
void refuse_other_content(const MappedFile& file) {
  const std::string bytes = file.read(0, std::min<size_t>(file.bytes(), 512));
  std::string_view start = bytes;
  const size_t text = start.find_first_not_of(" \t\r\n");
  if (text != std::string_view::npos && start[text] == '<') start.remove_prefix(text);
  for (const OtherContent& other : kOtherContents) {
    if (begins(start, other.start)) throw PackError(file.name() + ": is " + other.meaning);
  }
}

}  // namespace

PackHeader read_pack_header(const MappedFile& file) {
  const std::string& where = file.name();
  if (file.bytes() < 8) {
    throw PackError(where + ": has " + std::to_string(file.bytes()) +
                    " bytes, expected a header of at least 8");
  }
  const std::string length = file.read(0, 8);
  uint64_t header_bytes = 0;
  for (size_t i = 8; i-- > 0;) header_bytes = header_bytes << 8 | static_cast<uint8_t>(length[i]);
  if (header_bytes > file.bytes() - 8) {
    refuse_other_content(file);
    throw PackError(where + ": has " + std::to_string(file.bytes()) +
                    " bytes, but its header alone is said to take " + std::to_string(header_bytes) +
                    "; the file is cut short or no pack");
  }
  if (header_bytes > kPackHeaderLimit) {
    refuse_other_content(file);
    throw PackError(where + ": header of " + std::to_string(header_bytes) +
                    " bytes, expected at most " + std::to_string(kPackHeaderLimit));
  }
  const uint64_t data_begin = 8 + header_bytes;
  if (data_begin % kPackAlignment != 0) {
    throw PackError(where + ": data begins at byte " + std::to_string(data_begin) +
                    ", expected a multiple of " + std::to_string(kPackAlignment));
  }
  const std::string text = file.read(8, static_cast<size_t>(header_bytes));
  Json object = parse_object(text, where + ": header");
  PackHeader header;
  header.metadata = read_metadata(object, where);
  const auto format = header.metadata.find("format");
  if (format == header.metadata.end() || format->second != kPackFormat) {
    throw PackError(where + ": is no pack (format '" +
                    (format == header.metadata.end() ? "" : printable(format->second, 40)) +
                    "'), expected '" + kPackFormat + "'");
  }
  const auto version = header.metadata.find("pack");
  if (version == header.metadata.end() || version->second != std::to_string(kPackVersion)) {
    throw PackError(where + ": is a pack of version '" +
                    (version == header.metadata.end() ? "" : printable(version->second, 20)) +
                    "', expected '" + std::to_string(kPackVersion) +
                    "': pack the model anew: onward pack MODEL -o FILE.onward");
  }
  std::vector<NamedRange> ranges;
  for (const auto& [name, entry] : object.items()) {
    ranges.push_back({name, read_range(entry, where + ": tensor '" + printable(name) + "'",
                                       data_begin, file.bytes() - data_begin)});
  }
  check_order(ranges, where, data_begin, file.bytes());
  for (NamedRange& each : ranges) {
    if (each.name.starts_with(kTextPrefix)) {
      header.texts.emplace(each.name.substr(kTextPrefix.size()), each.range);
    } else if (!each.name.starts_with(kPaddingPrefix)) {
      header.weights.emplace(std::move(each.name), each.range);
    }
  }
  return header;
}

uint32_t metadata_checksum(const std::map<std::string, std::string>& metadata) {
  uint32_t sum = 0;
  for (const auto& [name, value] : metadata) {
    if (name == "checksum") continue;
    sum = crc32(name.c_str(), name.size() + 1, sum);
    sum = crc32(value.c_str(), value.size() + 1, sum);
  }
  return sum;
}

std::string checksum_text(uint32_t sum) {
  std::string text(8, '0');
  for (size_t i = 0; i < 8; ++i) text[i] = "0123456789abcdef"[sum >> (28 - 4 * i) & 15];
  return text;
}

}  // namespace onward
