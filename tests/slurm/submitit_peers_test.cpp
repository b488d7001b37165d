// Our scripts in submitit's style against submitit 1.5.4 itself, byte for byte. Needs a Python with submitit:
// MUSTER_PEER_PYTHON, the one that ./dev test installs, or python3; without one the tests are skipped.
#include <gmock/gmock.h>

#include <cstdlib>

#include "slurm/batch_script.h"
#include "slurm/submitit_style.h"
#include "submitit_cases.h"
#include "temporary_folder.h"

namespace slurm {
namespace {

using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;

int shell(const std::string& command) {
  return std::system(command.c_str());
}

std::string peer_python() {
  std::vector<std::string> candidates = {MUSTER_PEERS_FOLDER "/bin/python", "python3"};
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

TEST(SubmititPeers, EveryScriptIsTheSameByteForByte) {
  const auto python = peer_python();
  if (python.empty()) GTEST_SKIP() << "no Python with submitit 1.5.4: ./dev test installs one unless MUSTER_PEERS=0";
  const TemporaryFolder folder;
  const auto cases = submitit_cases();
  ASSERT_GE(cases.size(), 60U);
  const auto root = (folder.path() / "logs").native();
  std::filesystem::create_directory(folder.path() / "out");
  write_file(folder.path() / "cases", source_of(cases, root));
  ASSERT_EQ(shell("'" + python + "' '" MUSTER_SOURCE_DIR "/tests/slurm/submitit_peer.py' '" +
                  (folder.path() / "cases").native() + "' '" + (folder.path() / "out").native() + "' >'" +
                  (folder.path() / "log").native() + "' 2>&1"),
            0)
      << read_file(folder.path() / "log");

  int scripts = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("case " + std::to_string(i) + ": " + cases[i].what);
    const auto stem = folder.path() / "out" / std::to_string(i);
    const auto logs = root + cases[i].folder;
    const auto ours = render_submitit({logs, command_for(logs), cases[i].submissions}, cases[i].calls);
    if (std::filesystem::exists(stem.native() + ".refused")) {
      EXPECT_TRUE(std::holds_alternative<SubmititRefusal>(ours)) << read_file(stem.native() + ".refused");
      continue;
    }
    ASSERT_TRUE(std::holds_alternative<std::string>(ours)) << std::get<SubmititRefusal>(ours).why.front();
    EXPECT_EQ(std::get<std::string>(ours), read_file(stem.native() + ".sh"));
    ++scripts;
  }
  EXPECT_GE(scripts, 60) << "refusals do not count";
}

}  // namespace
}  // namespace slurm
