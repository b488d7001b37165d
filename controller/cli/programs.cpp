#include "cli/programs.h"

#include <cstdlib>
#include <sstream>

namespace cli {

namespace fs = std::filesystem;

fs::path find_program(const std::string& name) {
  std::error_code error;
  const auto beside = fs::read_symlink("/proc/self/exe", error).parent_path() / name;
  if (fs::exists(beside, error)) return beside;
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (!folder.empty() && fs::exists(fs::path(folder) / name, error)) return fs::path(folder) / name;
  }
  return {};
}

}  // namespace cli
