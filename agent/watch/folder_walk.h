#pragma once

#include <sys/stat.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace agent::watch {

/// A part of a file, and how large the whole is.
struct FilePart {
  std::string bytes;
  std::uint64_t size = 0;
};

/// At most `most` bytes of a regular file from `offset` on. Empty: there is no such file, or no more in it. A pipe of
/// that name is not waited for.
FilePart read_part(const std::filesystem::path& file, std::uint64_t offset, std::size_t most);

/// A path whose names may have the wildcards of a shell: *, ? and [...]. A "\" makes the next character plain. One part
/// of one name may stand in brackets, as a group: "step-(*)-7b". Brackets without a wildcard between them are plain.
class Wildcards {
 public:
  struct Match {
    std::string path;
    std::string name;   // what the last name with a wildcard matched; empty: no name has one
    std::string group;  // the digits that the group matched; empty: none, or there is no group
  };

  /// `pattern` is absolute.
  explicit Wildcards(const std::string& pattern);

  /// Paths that are there, in no order. At most `budget` entries of folders are read; what is left of it comes back. A
  /// name that begins with a dot matches only a pattern that does.
  std::vector<Match> find(std::size_t& budget) const;

  /// `text` as a pattern that matches it alone.
  static std::string plain(const std::string& text);

  bool has_group() const { return has_group_; }

 private:
  struct Name {
    std::string text;  // the pattern, or the plain name
    bool is_pattern = false;
    /// Parts of a name with a group: the patterns before the group, of it, and behind it.
    std::optional<std::array<std::string, 3>> parts = {};
  };
  void find_group(Name& name);
  void search(const Match& so_far, std::size_t depth, std::size_t& budget, std::vector<Match>& out) const;

  std::vector<Name> names_;
  bool has_group_ = false;
};

/// A file or a folder below a folder.
struct FolderEntry {
  std::string path, name;
  struct stat status {};
};

enum class Links { kFollowed, kThemselves };

/// Calls `visit` for all below the folder, `depth` levels deep, at most `budget` entries; `budget` is what is left of
/// it. A folder comes before what is in it. What cannot be read is left out.
void walk_folder(const std::string& folder, int depth, Links links, std::size_t& budget,
                 const std::function<void(const FolderEntry&)>& visit);

/// When the content was changed last, in nanoseconds since 1970.
std::int64_t changed_ns(const struct stat& status);

}  // namespace agent::watch
