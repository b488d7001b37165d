#pragma once

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

// Where the build has put things. A test learns the places when it runs: in a macro they would make the compiler's
// cache miss in each clone.
namespace test {

/// The build folder. Test programs lie in its folder bin/.
inline std::string build_folder() {
  static const std::string kFolder =
      std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path().native();
  return kFolder;
}

/// A program of this build: "muster-worker".
inline std::string built_program(const std::string& name) {
  return build_folder() + "/bin/" + name;
}

/// A place that CMake has written down (tests/CMakeLists.txt): "source" or "deps". Throws std::runtime_error if it has
/// not.
inline std::string written_place(const std::string& name) {
  std::ifstream places(build_folder() + "/test_places");
  for (std::string line; std::getline(places, line);) {
    if (line.starts_with(name + "=")) return line.substr(name.size() + 1);
  }
  throw std::runtime_error("no " + name + " in " + build_folder() + "/test_places, which CMake writes");
}

/// The repository's folder.
inline std::string source_folder() {
  static const std::string kFolder = written_place("source");
  return kFolder;
}

/// Where ./dev setup puts downloads.
inline std::string deps_folder() {
  return written_place("deps");
}

}  // namespace test
