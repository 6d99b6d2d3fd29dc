#include "pack/pack.h"

#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"
#include "pack/checksum.h"
#include "pack/contents.h"
#include "pack/format.h"

namespace onward {
namespace {

void check_layout(const PackHeader& header, int64_t expected, const std::string& where) {
  const int64_t found = read_layout(header.metadata, where);
  if (found == expected) return;
  const auto writer = header.metadata.find("onward");
  const std::string version = writer == header.metadata.end() ? "?" : printable(writer->second, 20);
  throw PackError(where + ": has layout " + std::to_string(found) + " (packed by onward " +
                  version + "), expected layout " + std::to_string(expected) +
                  ": pack the model anew: onward pack MODEL -o " + where + " --force");
}

// Damage of the texts is found on every opening: they are in memory anyhow. A fuzzer would never
// come past this.
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

void check_weight(const std::string& name, const PackedBytes& bytes, const PackContents& contents,
                  const std::string& where) {
  const auto stated = contents.checksums.find(name);
  if (stated == contents.checksums.end()) {
    throw PackError(where + ": tensor '" + printable(name) + "' has no checksum");
  }
  const uint32_t found = crc32(bytes.data, bytes.bytes);
  if (found != stated->second) {
    throw PackError(where + ": tensor '" + printable(name) + "' has checksum " +
                    checksum_text(found) + ", expected " + checksum_text(stated->second) +
                    ": the file is damaged");
  }
}

}  // namespace

Pack open_pack(const std::string& path, std::unique_ptr<WeightStore> store,
               const PackOptions& options) {
  const auto file = std::make_shared<const MappedFile>(path);
  const std::string& where = file->name();
  PackHeader header = read_pack_header(*file);
  check_layout(header, store->packed_layout(), where);
  check_metadata(header, where);
  PackContents contents = read_contents(header.metadata, where);
  Pack pack;
  try {
    ModelBuilder builder(std::move(contents.spec),
                         options.cache_dtype.value_or(contents.cache_dtype), std::move(store));
    for (const auto& [name, place] : header.weights) {
      PackedBytes bytes{file->data() + place.begin, static_cast<size_t>(place.end - place.begin),
                        true, nullptr};
      if (!options.copy) bytes.owner = file;
      if (options.verify) check_weight(name, bytes, contents, where);
      const auto dtype = contents.dtypes.find(name);
      builder.add_packed(name, bytes, dtype == contents.dtypes.end() ? DType::f32 : dtype->second);
    }
    pack.model = builder.finish();
  } catch (const WeightError& error) {
    throw PackError(where + ": " + printable(error.what(), 300));
  } catch (const InvalidArgument& error) {
    throw PackError(where + ": " + printable(error.what(), 300));
  }
  pack.vocabulary = std::move(contents.vocabulary);
  pack.texts = std::move(header.metadata);
  return pack;
}

}  // namespace onward
