#include "base/cgroups.h"

#include <fstream>
#include <sstream>

namespace base {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 64;  // cgroups above a process

bool names(const std::string& controllers, const std::string& wanted) {
  std::istringstream list(controllers);
  for (std::string one; std::getline(list, one, ',');) {
    if (one == wanted) return true;
  }
  return false;
}

/// `root` is the folder of the group "/".
std::vector<Cgroup> upwards(const fs::path& root, fs::path group) {
  std::vector<Cgroup> all;
  while (all.size() < kDeepest) {
    all.push_back({group.native(), root / group.relative_path()});
    if (!group.has_relative_path()) break;
    group = group.parent_path();
  }
  return all;
}

/// The tree of several controllers is mounted by all their names, and most machines have a link for each.
fs::path tree_of(const fs::path& mounted_at, const std::string& controllers, const std::string& wanted) {
  std::error_code unknown;
  return fs::exists(mounted_at / controllers, unknown) ? mounted_at / controllers : mounted_at / wanted;
}

/// The second version stands beside the first one where a machine has both.
fs::path second_tree(const fs::path& mounted_at) {
  std::error_code unknown;
  return fs::exists(mounted_at / "unified", unknown) ? mounted_at / "unified" : mounted_at;
}

}  // namespace

Cgroups cgroups_of(const std::string& controller, const fs::path& cgroup_file, const fs::path& mounted_at) {
  Cgroups found;
  std::ifstream lines(cgroup_file);
  // "<number>:<controllers>:<path>", of the second version "0::<path>".
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(':'), second = line.find(':', colon + 1);
    if (colon == std::string::npos || second == std::string::npos) continue;
    const auto controllers = line.substr(colon + 1, second - colon - 1), path = line.substr(second + 1);
    if (controllers.empty()) found.second = upwards(second_tree(mounted_at), path);
    if (names(controllers, controller)) found.first = upwards(tree_of(mounted_at, controllers, controller), path);
  }
  return found;
}

}  // namespace base
