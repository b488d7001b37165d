#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace worker {

/// Receives one document's text.
using DocumentSink = std::function<void(std::string_view text)>;

/// Real text as a sequence of documents, always in the same order.
struct TextSource {
  /// Describes the source, with a fingerprint of its files' names, sizes and times. Equal descriptions mean equal
  /// texts. The same text may have several descriptions, for example after a touch.
  std::string description;
  std::function<void(const DocumentSink&)> read;  ///< passes every document to the sink; throws std::runtime_error
  std::string name = {};                          ///< a name for people
};

struct TextSourceOptions {
  std::string kind = "auto";  ///< man, folder, fixture, or auto: man if the machine has enough pages, otherwise fixture
  std::string path = {};      ///< the folder, for kind "folder"
  std::int64_t max_bytes = 16 << 20;  ///< the most text that is read
  std::string man_folder = "/usr/share/man";
};

/// Opens a source:
/// - man: the machine's English manual pages, sections 1 to 8, without markup. A hash of their names gives the order,
/// so
///   the beginning of the text is a fair sample. Damaged pages are left out.
/// - folder: the text files below `path` in the order of their names, at most 100,000. Hidden files, links, and files
///   with a NUL byte near the start are left out.
/// - fixture: the text built into this program.
/// Throws UsageError naming key, value and remedy when the folder does not exist or holds no text.
TextSource open_text_source(const TextSourceOptions& options);

}  // namespace worker
