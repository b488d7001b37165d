#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tests/places.h"
#include "tests/worker/temporary_folder.h"

// Helpers of tests that compare with Hugging Face's models or with other programs of tests/peers.
// tests/peers/families_peer.py makes tiny models with every switch, and their outputs, losses and gradients. The
// programs need a Python with torch and transformers: MUSTER_PEER_PYTHON, the one that ./dev test installs, or python3.
// Without one the tests are skipped. Needs MUSTER_SOURCE_DIR and MUSTER_PEERS_FOLDER.
namespace worker::testing {

inline int shell(const std::string& command) {
  return std::system(command.c_str());
}

/// The first Python with the peer's packages; empty when there is none. Importing them takes seconds.
inline std::string peer_python() {
  std::vector<std::string> candidates = {::test::deps_folder() + "/peers/bin/python", "python3"};
  if (const char* chosen = std::getenv("MUSTER_PEER_PYTHON"); chosen != nullptr) candidates = {chosen};
  const std::string look =
      "from importlib.util import find_spec; exit(not all(map(find_spec, (\"torch\", \"transformers\", "
      "\"safetensors\"))))";
  for (const auto& python : candidates) {
    if (shell("'" + python + "' -c '" + look + "' >/dev/null 2>&1") == 0) return python;
  }
  return {};
}

/// Why a test without such a Python is skipped.
inline constexpr const char* kNoPeerPython =
    "no Python with torch, transformers and safetensors: ./dev test installs one unless MUSTER_PEERS=0";

/// Runs a program of tests/peers. Its output is in `folder`/peer.log, and in the failure of the test. The program's
/// modules are imported once for all its runs by this process.
void run_peer(const std::string& python, const std::string& program, const std::vector<std::string>& arguments,
              const std::filesystem::path& folder);

inline void expect_close(const at::Tensor& got, const at::Tensor& expected, const std::string& what) {
  ASSERT_EQ(got.sizes(), expected.sizes()) << what;
  EXPECT_TRUE(at::allclose(got, expected, 1e-4, 1e-5))
      << what << " differs by up to " << (got - expected).abs().max().item<double>();
}

inline std::vector<std::filesystem::path> folders_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> out;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_directory()) out.push_back(entry.path());
  }
  return out;
}

/// Tests that are skipped without such a Python.
class PeerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { python_ = peer_python(); }
  void SetUp() override {
    if (python_.empty()) GTEST_SKIP() << kNoPeerPython;
  }

  /// Runs families_peer.py: `mode` is "make" or "run".
  static void peer(const std::string& mode, const std::filesystem::path& folder, std::string_view family) {
    run_peer(python_, "families_peer.py", {mode, folder.native(), std::string(family)}, folder);
  }

  inline static std::string python_;
};

}  // namespace worker::testing
