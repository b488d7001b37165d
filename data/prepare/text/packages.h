#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/prepare/text/text_source.h"

namespace data::prepare {

/// One paragraph of a control file, as deb822(5) describes them.
class Deb822Paragraph {
 public:
  struct Field {
    std::string_view name;   // as written
    std::string_view value;  // all its lines as they are, without the space behind the colon
  };

  /// The value of a field, whatever the case of its name; empty if there is none.
  std::string_view operator[](std::string_view name) const;

  std::vector<Field> fields;
};

/// Calls `take` for each paragraph. A line that begins with a space or a tab continues the field above it. Lines that
/// begin with '#' and lines that are no field are left out. Never throws on any input but for what `take` throws.
void for_paragraphs(std::string_view text, const std::function<void(const Deb822Paragraph&)>& take);

/// A value of several lines as text: without the space that begins each line, and with an empty line for each " .".
std::string folded_text(std::string_view value);

struct PackagesOptions {
  /// Files of Debian control paragraphs: dpkg's status file, apt's lists (*_Packages), packed with gzip or LZ4 or not.
  /// Empty: package_files(root). A named file without packages is an error.
  std::vector<std::filesystem::path> files = {};
  /// Labels: only so many sections with the most packages are kept, the others are dropped. 0: all. At most 65,536.
  std::int64_t sections = 12;
  std::filesystem::path root = "/";  // where the lists of this machine are looked for
};

/// The description of each package as text, its section as label: "admin", "libs". The area before a slash is no part
/// of the label: "contrib/utils" counts as "utils". The name of the package is not in the text. Descriptions that occur
/// twice are kept once, with the section of the first. Labels are sorted by bytes. The order is that of a hash of the
/// names, so each part is a fair sample; a part has 4,096 packages.
///
/// With options.files empty and fewer than 200 packages on this machine, the source is the 60 packages built into this
/// program, and TextSource::name says so.
///
/// Takes the memory of all descriptions, about 50 MB for Debian. Reads at most 512 MiB and keeps at most 1,000,000
/// packages. Throws std::runtime_error naming file, finding and remedy.
TextSource open_packages(const PackagesOptions& options = {});

/// The package lists below `root`: var/lib/dpkg/status and var/lib/apt/lists/*_Packages*. Files that cannot be read are
/// left out.
std::vector<std::filesystem::path> package_files(const std::filesystem::path& root);

}  // namespace data::prepare
