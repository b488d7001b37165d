#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/places.h"

namespace test {

/// True: golden files are to be rewritten.
inline bool is_blessed() {
  const char* bless = std::getenv("MUSTER_BLESS");
  return bless != nullptr && std::string(bless) == "1";
}

/// Compares `text` with the golden file `name`; with MUSTER_BLESS=1 in the environment, rewrites the file instead.
inline void expect_golden(const std::string& name, const std::string& text) {
  const auto file = std::filesystem::path(::test::source_folder() + "/tests/golden") / name;
  if (is_blessed()) {
    std::ofstream(file, std::ios::binary) << text;
    return;
  }
  std::ostringstream stored;
  stored << std::ifstream(file, std::ios::binary).rdbuf();
  EXPECT_EQ(stored.str(), text) << file << " differs: if that is meant, run ./dev bless and review its diff";
}

}  // namespace test
