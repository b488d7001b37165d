// Compares scripts in submitit's style with submitit 1.5.4 itself, byte for byte. Needs a Python with submitit:
// MUSTER_PEER_PYTHON, the one that ./dev test installs, or python3. Without one the tests are skipped.
#include <gmock/gmock.h>

#include <cstdlib>
#include <optional>

#include "slurm/batch_script.h"
#include "tests/places.h"
#include "tests/slurm/submitit/submitit_style.h"
#include "tests/slurm/submitit_cases.h"
#include "tests/slurm/temporary_folder.h"

namespace slurm {
namespace {

using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;

int shell(const std::string& command) {
  return std::system(command.c_str());
}

std::string peer_python() {
  std::vector<std::string> candidates = {::test::deps_folder() + "/peers/bin/python", "python3"};
  if (const char* chosen = std::getenv("MUSTER_PEER_PYTHON"); chosen != nullptr) candidates = {chosen};
  for (const auto& python : candidates) {
    const auto check =
        "'" + python + "' -c 'import submitit; assert submitit.__version__ == \"1.5.4\"' >/dev/null 2>&1";
    if (shell(check) == 0) return python;
  }
  return {};
}

/// A value as Python source.
struct Source {
  std::string operator()(std::monostate) const { return "None"; }
  std::string operator()(bool value) const { return value ? "True" : "False"; }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const {
    char text[64];
    std::snprintf(text, sizeof text, "%.17g", value);
    const std::string digits(text);
    return digits.find_first_of(".e") == std::string::npos ? digits + ".0" : digits;
  }
  std::string operator()(const std::string& value) const {
    std::string text = "'";
    for (const char c : value) {
      if (static_cast<unsigned char>(c) >= 0x80) {
        text += c;
        continue;
      }
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned char>(c));
      text += escaped;
    }
    return text + "'";
  }
  std::string operator()(const SubmititList& list) const {
    std::string text = "[";
    for (const auto& entry : list) text += (*this)(entry) + ",";
    return text + "]";
  }
  std::string operator()(const SubmititDict& dict) const {
    std::string text = "{";
    for (const auto& [name, value] : dict) text += (*this)(name) + ":" + of(value) + ",";
    return text + "}";
  }
  static std::string of(const SubmititValue& value) {
    using Base = std::variant<std::monostate, bool, std::int64_t, double, std::string, SubmititList, SubmititDict>;
    return std::visit(Source{}, static_cast<const Base&>(value));
  }
};

std::string source_of(const std::vector<SubmititCase>& cases, const std::string& root) {
  std::string text = "[";
  for (const auto& c : cases) {
    text += "(" + Source{}(root + c.folder) + "," + std::to_string(c.submissions) + ",[";
    for (const auto& call : c.calls) text += Source{}(call) + ",";
    text += "]),\n";
  }
  return text + "]";
}

/// submitit's own command behind srun.
std::string command_for(const std::string& folder) {
  auto path = std::filesystem::path(folder).lexically_normal().native();
  if (path.ends_with('/')) path.pop_back();
  return "python3 -u -m submitit.core._submit " + shell_quote(path);
}

/// Runs submitit itself on each case.
class SubmititPeers : public ::testing::Test {
 protected:
  void SetUp() override {
    python_ = peer_python();
    if (python_.empty()) GTEST_SKIP() << "no Python with submitit 1.5.4: ./dev test installs one unless MUSTER_PEERS=0";
  }
  void run(const std::vector<SubmititCase>& cases) {
    std::filesystem::create_directory(folder_.path() / "out");
    write_file(folder_.path() / "cases", source_of(cases, root()));
    ASSERT_EQ(shell("'" + python_ + "' '" + ::test::source_folder() + "/tests/slurm/submitit_peer.py' '" +
                    (folder_.path() / "cases").native() + "' '" + (folder_.path() / "out").native() + "' >'" +
                    (folder_.path() / "log").native() + "' 2>&1"),
              0)
        << read_file(folder_.path() / "log");
  }
  std::string root() const { return (folder_.path() / "logs").native(); }
  /// nullopt: submitit refused it.
  std::optional<std::string> theirs(std::size_t number) const {
    const auto stem = folder_.path() / "out" / std::to_string(number);
    if (std::filesystem::exists(stem.native() + ".refused")) return std::nullopt;
    return read_file(stem.native() + ".sh");
  }
  std::variant<std::string, SubmititRefusal> ours(const SubmititCase& one) const {
    const auto logs = root() + one.folder;
    return render_submitit({logs, command_for(logs), one.submissions}, one.calls);
  }
  /// Returns how many scripts were compared. Refusals do not count.
  int expect_same(const std::vector<SubmititCase>& cases) {
    run(cases);
    int scripts = 0;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE("case " + std::to_string(i) + ": " + cases[i].what + ": " + source_of({cases[i]}, ""));
      const auto own = ours(cases[i]);
      const auto* refusal = std::get_if<SubmititRefusal>(&own);
      const auto script = theirs(i);
      EXPECT_EQ(refusal == nullptr, script.has_value()) << (refusal != nullptr ? refusal->why.front() : "");
      if (refusal != nullptr || !script) continue;
      EXPECT_EQ(std::get<std::string>(own), *script);
      ++scripts;
    }
    return scripts;
  }

 private:
  TemporaryFolder folder_;
  std::string python_;
};

TEST_F(SubmititPeers, EveryScriptIsTheSameByteForByte) {
  EXPECT_GE(expect_same(submitit_cases()), 100);
}

TEST_F(SubmititPeers, SoAreTwoHundredDraws) {
  EXPECT_GE(expect_same(submitit_draws(20261123, 200)), 150);
}

// The differences that submitit_style.h lists.
TEST_F(SubmititPeers, WhatDiffersIsThatWeRefuseNonsense) {
  const auto cases = submitit_nonsense();
  run(cases);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_TRUE(theirs(i)) << cases[i].what << ": no difference any more";
    EXPECT_TRUE(std::holds_alternative<SubmititRefusal>(ours(cases[i]))) << cases[i].what;
  }
}

}  // namespace
}  // namespace slurm
