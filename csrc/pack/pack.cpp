#include "pack/pack.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"
#include "pack/checksum.h"
#include "pack/contents.h"
#include "pack/format.h"

namespace onward {
namespace {

void check_layout(const PackHeader& header, const WeightStore& store, const std::string& where) {
  const int64_t expected = store.packed_layout();
  const int64_t found = read_layout(header.metadata, where);
  if (found == expected) return;
  const auto writer = header.metadata.find("onward");
  const std::string version = writer == header.metadata.end() ? "?" : printable(writer->second, 20);
  const bool cpu = store.device() == "cpu";
  const std::string on = cpu ? "" : ", that of " + store.device();
  const std::string flag = cpu ? "" : " --device " + store.device();
  throw PackError(where + ": has layout " + std::to_string(found) + " (packed by onward " +
                  version + "), expected layout " + std::to_string(expected) + on +
                  ": pack the model anew: onward pack MODEL -o " + where + flag + " --force");
}

// Damage of the metadata is found on every opening, because the texts are in memory anyway. Left out
// of fuzzers, which would never get past it.
void check_metadata(const PackHeader& header, const std::string& where) {
#ifndef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
  const auto stated = header.metadata.find("checksum");
  const std::string found = checksum_text(metadata_checksum(header.metadata));
  if (stated == header.metadata.end() || stated->second != found) {
    throw PackError(where + ": the metadata has checksum " + found + ", expected '" +
                    (stated == header.metadata.end() ? "" : printable(stated->second, 20)) +
                    "': the file is damaged");
  }
#endif
}

void check_tensor(const std::string& name, const void* data, size_t bytes,
                  const PackContents& contents, const std::string& where) {
  const auto stated = contents.checksums.find(name);
  if (stated == contents.checksums.end()) {
    throw PackError(where + ": tensor '" + printable(name) + "' has no checksum");
  }
  const uint32_t found = crc32(data, bytes);
  if (found != stated->second) {
    throw PackError(where + ": tensor '" + printable(name) + "' has checksum " +
                    checksum_text(found) + ", expected " + checksum_text(stated->second) +
                    ": the file is damaged");
  }
}

// Refuses overlong forms, halves of surrogate pairs and numbers beyond U+10FFFF.
bool is_utf8(const std::string& text) {
  const auto byte = [&](size_t at) -> uint32_t {
    return at < text.size() ? static_cast<uint8_t>(text[at]) : 0;
  };
  for (size_t i = 0; i < text.size();) {
    uint64_t eight = 0;  // eight ASCII bytes at once
    if (i + sizeof(eight) <= text.size()) {
      std::memcpy(&eight, text.data() + i, sizeof(eight));
      if ((eight & 0x8080808080808080u) == 0) {
        i += sizeof(eight);
        continue;
      }
    }
    const uint32_t first = byte(i);
    size_t more = 0;
    if (first >= 0x80) {
      if (first < 0xC2 || first >= 0xF5) return false;
      more = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
    }
    uint32_t code = more == 0 ? first : first & (0x3Fu >> more);
    for (size_t k = 1; k <= more; ++k) {
      if ((byte(i + k) & 0xC0) != 0x80) return false;
      code = code << 6 | (byte(i + k) & 0x3F);
    }
    if (more == 2 && (code < 0x800 || (code >= 0xD800 && code < 0xE000))) return false;
    if (more == 3 && (code < 0x10000 || code > 0x10FFFF)) return false;
    i += more + 1;
  }
  return true;
}

// Adds the texts that are tensors to the texts of the metadata. They are read as a whole, so their
// checksums are compared too.
void read_texts(const MappedFile& file, const PackHeader& header, const PackContents& contents,
                std::map<std::string, std::string>& texts) {
  for (const auto& [key, range] : header.texts) {
    const std::string name = std::string(kTextPrefix) + key;
    const std::string where = file.name() + ": tensor '" + printable(name) + "'";
    const uint64_t bytes = range.end - range.begin;
    if (bytes > kPackTextLimit) {
      throw PackError(where + " has " + std::to_string(bytes) + " bytes, expected at most " +
                      std::to_string(kPackTextLimit));
    }
    std::string text = file.read(range.begin, static_cast<size_t>(bytes));
#ifndef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
    check_tensor(name, text.data(), text.size(), contents, file.name());
#endif
    if (!is_utf8(text)) throw PackError(where + " is not UTF-8");
    if (!texts.emplace(key, std::move(text)).second) {
      throw PackError(where + " is in the metadata too, expected it once");
    }
  }
}

}  // namespace

Pack open_pack(const std::string& path, std::unique_ptr<WeightStore> store,
               const PackOptions& options) {
  const auto file = std::make_shared<const MappedFile>(path);
  const std::string& where = file->name();
  PackHeader header = read_pack_header(*file);
  check_layout(header, *store, where);
  check_metadata(header, where);
  PackContents contents = read_contents(header.metadata, where);
  Pack pack;
  try {
    ModelBuilder builder(std::move(contents.spec),
                         options.cache_dtype.value_or(contents.cache_dtype), std::move(store));
    for (const auto& [name, range] : header.weights) {
      PackedBytes bytes{file->data() + range.begin, static_cast<size_t>(range.end - range.begin),
                        true, nullptr};
      if (!options.copy) bytes.owner = file;
      if (options.verify) check_tensor(name, bytes.data, bytes.bytes, contents, where);
      const auto found = contents.dtypes.find(name);
      const DType dtype = found == contents.dtypes.end() ? DType::f32 : found->second;
      builder.add_packed(name, bytes, dtype);
      if (range.numbers != (dtype == DType::f32)) {
        throw PackError(where + ": tensor '" + printable(name) + "' is " +
                        (range.numbers ? "F32" : "U8") + ", expected the other for a weight in " +
                        dtype_name(dtype));
      }
    }
    pack.model = builder.finish();
  } catch (const WeightError& error) {
    throw PackError(where + ": " + printable(error.what(), 300));
  } catch (const InvalidArgument& error) {
    throw PackError(where + ": " + printable(error.what(), 300));
  }
  pack.vocabulary = std::move(contents.vocabulary);
  pack.texts = std::move(header.metadata);
  read_texts(*file, header, contents, pack.texts);
  return pack;
}

}  // namespace onward
