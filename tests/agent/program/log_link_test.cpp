// Goal: people find a rank's log under the name that their batch scripts gave it, and lose no file of theirs to it.
// Method: expansion as a table beside sbatch's manual; links in a folder of our own.
#include "agent/program/before_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "tests/temporary_folder.h"

namespace agent::program {
namespace {

using testing::HasSubstr;

/// Sets a variable of Slurm's for as long as it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* was = ::getenv(name)) was_ = was;
    ::setenv(name, value, 1);
  }
  ~Variable() { was_ ? ::setenv(name_, was_->c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> was_;
};

PatternNames names() {
  const Variable job("SLURM_JOB_ID", "1234"), step("SLURM_STEP_ID", "0"), array("SLURM_ARRAY_JOB_ID", "1230"),
      task("SLURM_ARRAY_TASK_ID", "4"), node("SLURMD_NODENAME", "node7.cluster");
  auto all = pattern_names(spec::own_environment(), "tune", 0, 1);
  all['u'] = "ada";
  return all;
}

TEST(LogLink, ExpandsWhatSbatchDoes) {
  const std::vector<std::pair<std::string, std::string>> table{
      {"%x-%j.out", "tune-1234.out"},
      {"%A_%a.log", "1230_4.log"},
      {"%J", "1234.0"},
      {"%s.%N.%n", "0.node7.1"},
      {"%u/%x", "ada/tune"},
      {"%6j", "001234"},
      {"%2j", "1234"},
      {"%99a", "0000000004"},
      {"%5x", "tune"},
      {"100%%-%%j", "100%-%j"},
      {"plain.txt", "plain.txt"},
      {"a%k%", "a%k%"},
      {"%3t", "000"},
  };
  for (const auto& [pattern, expanded] : table) EXPECT_EQ(expand_pattern(pattern, names()), expanded) << pattern;
}

TEST(LogLink, OneFileIsRankZerosAndTasksHaveTheirOwn) {
  auto third = names();
  third['t'] = "3";
  EXPECT_EQ(expand_pattern("%x-%j.out", third), std::nullopt);
  EXPECT_EQ(expand_pattern("%x-%%t.out", third), std::nullopt) << "no sign of a task";
  EXPECT_EQ(expand_pattern("%x-%t.out", third), "tune-3.out");
}

TEST(LogLink, AJobNameIsOneNameOfAFolder) {
  EXPECT_EQ(pattern_names({}, "../../etc/x", 0, 0).at('x'), ".._.._etc_x");
}

class Links : public testing::Test {
 protected:
  std::filesystem::path at(const std::string& name) const { return folder_.path() / name; }
  test::TemporaryFolder folder_;
};

TEST_F(Links, LeadToTheLogAndMoveOnWithTheNextAttempt) {
  test::write_file(at("one.log"), "one\n");
  test::write_file(at("two.log"), "two\n");
  place_link(at("deep/er/out"), at("one.log"));
  EXPECT_EQ(test::read_file(at("deep/er/out")), "one\n");
  place_link(at("deep/er/out"), at("two.log"));
  EXPECT_EQ(test::read_file(at("deep/er/out")), "two\n");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(at("deep/er")), {}), 1) << "nothing is left over";
}

std::string refusal(const std::filesystem::path& link, const std::filesystem::path& log) {
  try {
    place_link(link, log);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST_F(Links, NeverTakeTheNameOfAFileOrAFolder) {
  test::write_file(at("mine"), "mine\n");
  std::filesystem::create_directory(at("folder"));
  EXPECT_THAT(refusal(at("mine"), at("log")), HasSubstr("mine: there is a file of that name already"));
  EXPECT_THAT(refusal(at("folder"), at("log")), HasSubstr("there is a file of that name already"));
  EXPECT_THAT(refusal(at("mine/out"), at("log")), HasSubstr("its folder cannot be made"));
  EXPECT_EQ(test::read_file(at("mine")), "mine\n");
}

}  // namespace
}  // namespace agent::program
