#pragma once

#include <filesystem>
#include <string>

namespace starter {

/// The program that fits a torch.
struct Build {
  std::filesystem::path program{};
  std::string libraries{};  // the folders of LibTorch's and of CUDA's runtime, as LD_LIBRARY_PATH has them
};

/// Finds the package torch beside this program, and the build of the program that fits it. `home`: the user's, or
/// empty.
///
/// The place of the program decides: <prefix>/bin/NAME belongs to
/// <prefix>/lib/python3.*/site-packages/muster_hpc_worker, or to <prefix>/muster_hpc_worker after `pip install
/// --target`. torch is in the same folder. Else it is where Python would look next: in the user's packages and in those
/// of the Python below a virtual environment that shows them. Reads small files alone, no Python is started. Throws
/// base::UsageError with a line for people.
Build find_build(const std::filesystem::path& program, const std::filesystem::path& home);

}  // namespace starter
