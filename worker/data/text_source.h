#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace worker {

/// Takes one document's text.
using DocumentSink = std::function<void(std::string_view text)>;

/// Real text as a sequence of documents, always in the same order.
struct TextSource {
  /// What it is, with a fingerprint of its files' names, sizes and times: equal descriptions mean equal texts. The same
  /// text may have several, as after a touch.
  std::string description;
  std::function<void(const DocumentSink&)> read;  ///< hands over every document; throws std::runtime_error
  std::string name = {};                          ///< what it is, for people
};

struct TextSourceOptions {
  std::string kind = "auto";          ///< man, folder, fixture, or auto: man where there is enough of it, else fixture
  std::string path = {};              ///< the folder, for kind "folder"
  std::int64_t max_bytes = 16 << 20;  ///< the text is cut off here
  std::string man_folder = "/usr/share/man";
};

/// Opens a source:
/// - man: the English manual pages of the machine, sections 1 to 8, markup stripped, in an order shuffled by name so
///   that a cut leaves a fair sample. Damaged pages are left out.
/// - folder: every text file below `path` by sorted name. Hidden files, links and files with a NUL byte early on are
/// left
///   out; at most 100,000 files.
/// - fixture: the text built into this program.
/// Throws UsageError that names key, value and remedy when there is no such folder or it holds no text.
TextSource open_text_source(const TextSourceOptions& options);

}  // namespace worker
