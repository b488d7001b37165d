#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace agent::watch {

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
