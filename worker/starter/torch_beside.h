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
/// The place of the program decides. <prefix>/bin/NAME of a package or an archive belongs to
/// <prefix>/lib/muster/muster_hpc_worker, and the torch beside that is taken where <prefix>/local/lib/muster has none.
/// A wheel's belongs to <prefix>/lib/python3.*/site-packages/muster_hpc_worker, or to <prefix>/muster_hpc_worker after
/// `pip install --target`; torch is in the same folder, or where Python would look next: in the user's packages and in
/// those of the Python below a virtual environment that shows them. Reads small files alone, no Python is started.
/// Throws base::UsageError with a line for people.
Build find_build(const std::filesystem::path& program, const std::filesystem::path& home);

}  // namespace starter
