#include "cli/programs.h"

#include "slurm/command.h"

namespace cli {

namespace fs = std::filesystem;

fs::path find_program(const std::string& name) {
  std::error_code error;
  const auto beside = fs::read_symlink("/proc/self/exe", error).parent_path() / name;
  if (fs::exists(beside, error)) return beside;
  return slurm::find_in_path(name).value_or("");
}

}  // namespace cli
