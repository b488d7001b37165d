#include "agent/watch/folder_walk.h"

#include <dirent.h>

#include <memory>

namespace agent::watch {

void walk_folder(const std::string& folder, int depth, Links links, std::size_t& budget,
                 const std::function<void(const FolderEntry&)>& visit) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), ::closedir);
  if (!open) return;
  for (const dirent* one = ::readdir(open.get()); one != nullptr && budget > 0; one = ::readdir(open.get())) {
    FolderEntry entry{.path = {}, .name = one->d_name};
    if (entry.name == "." || entry.name == "..") continue;
    --budget;
    entry.path = folder + "/" + entry.name;
    const auto look = links == Links::kFollowed ? ::stat : ::lstat;
    if (look(entry.path.c_str(), &entry.status) != 0) continue;
    visit(entry);
    if (S_ISDIR(entry.status.st_mode) && depth > 1) walk_folder(entry.path, depth - 1, links, budget, visit);
  }
}

std::int64_t changed_ns(const struct stat& status) {
  return status.st_mtim.tv_sec * std::int64_t{1'000'000'000} + status.st_mtim.tv_nsec;
}

}  // namespace agent::watch
