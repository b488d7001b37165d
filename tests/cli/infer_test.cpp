// Goal: `muster generate`, `embed` and `classify` start muster-infer with what the user has given, and with a job's
// checkpoints and run file for the number of a job.
// Method: the real program, copied beside a script that stands for muster-infer and prints what it gets; a real gRPC
// server whose answers are scripted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/fake_controller.h"
#include "tests/places.h"

namespace test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

namespace fs = std::filesystem;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

class InferCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::copy_file(::test::built_program("muster"), folder_ / "muster");
    const auto script = folder_ / "muster-infer";
    write_file(script,
               "#!/bin/sh\nprintf '%s\\n' \"$@\"\n"
               "for word; do case $word in /proc/self/fd/*) cat \"$word\" ;; esac; done\nexit 7\n");
    fs::permissions(script, fs::perms::owner_all);
  }

  Finished muster(std::vector<std::string> words) {
    words.insert(words.begin(), (folder_ / "muster").native());
    return run(words, fake_.environment(), 20s);
  }

  /// Job 7 trains a recipe and has checkpoints.
  void add_job() {
    fake_.with([&](FakeState& state) {
      auto job = sample_job(7, "running");
      auto& values = *job.mutable_spec()->mutable_recipe()->mutable_values();
      values["model.hidden_size"].set_whole(48);
      job.set_checkpoint_folder(folder_ / "checkpoints");
      state.jobs.push_back(job);
    });
  }

  const TemporaryFolder folder_;
  FakeController fake_;
};

TEST_F(InferCommand, HandsOverModelOptionsAndTexts) {
  const auto done = muster({"generate", "models/x", "a b", "--temperature", "0.5", "-f", "-", "--json", "c"});
  EXPECT_EQ(done.exit, 7) << done.err;
  EXPECT_THAT(lines_of(done.out),
              ElementsAre("generate", "models/x", "--file", "-", "--json", "--temperature", "0.5", "--", "a b", "c"));
  EXPECT_THAT(lines_of(muster({"embed", "x", "--pool=mean"}).out), ElementsAre("embed", "x", "--pool", "mean"));
  EXPECT_THAT(lines_of(muster({"classify", "x", "t", "--top", "2"}).out),
              ElementsAre("classify", "x", "--top", "2", "--", "t"));
}

TEST_F(InferCommand, RefusesWhatACommandDoesNotHave) {
  const auto done = muster({"embed", "x", "--temperature", "1"});
  EXPECT_EQ(done.exit, 2);
  EXPECT_THAT(done.err, HasSubstr("--temperature"));
  EXPECT_EQ(muster({"generate"}).exit, 2);
  EXPECT_THAT(muster({"generate", "--help"}).out, AllOf(HasSubstr("--top-p P"), HasSubstr("MODEL")));
}

TEST_F(InferCommand, TheNumberOfAJobIsItsCheckpointsWithItsRunFile) {
  add_job();
  const auto missing = muster({"generate", "7", "a"});
  EXPECT_EQ(missing.exit, 2);
  EXPECT_THAT(missing.err, AllOf(HasSubstr("job 7 has no checkpoints that this machine sees"),
                                 HasSubstr((folder_ / "checkpoints").native())));
  fs::create_directories(folder_ / "checkpoints");
  const auto done = muster({"generate", "7", "a", "--best"});
  EXPECT_EQ(done.exit, 7) << done.err;
  const auto lines = lines_of(done.out);
  ASSERT_GE(lines.size(), 8U) << done.out;
  EXPECT_EQ(lines[1], (folder_ / "checkpoints").native());
  EXPECT_EQ(lines[2], "--run-file");
  EXPECT_THAT(lines[3], StartsWith("/proc/self/fd/"));
  EXPECT_EQ(lines[4], "--best");
  const auto run_file = nlohmann::json::parse(lines[7]);
  EXPECT_EQ(run_file.at("model").at("hidden_size"), 48);
}

TEST_F(InferCommand, AJobWithoutAModelIsNamed) {
  fake_.with([&](FakeState& state) {
    auto job = sample_job(8, "running");
    job.mutable_spec()->mutable_command()->add_argv("true");
    state.jobs.push_back(job);
  });
  const auto command = muster({"generate", "8", "a"});
  EXPECT_EQ(command.exit, 2);
  EXPECT_THAT(command.err, HasSubstr("job 8 runs a command"));
  EXPECT_EQ(muster({"generate", "99", "a"}).exit, 3);
  EXPECT_EQ(muster({"generate", "99999999999999999999", "a"}).exit, 3);
}

TEST_F(InferCommand, SaysWhatIsMissingWithoutMusterInfer) {
  fs::remove(folder_ / "muster-infer");
  auto environment = fake_.environment();
  environment["PATH"] = "/usr/bin:/bin";
  const auto done = run({folder_ / "muster", "generate", "x", "a"}, environment, 20s);
  EXPECT_EQ(done.exit, 2);
  EXPECT_THAT(done.err, HasSubstr("there is no muster-infer beside muster or in PATH"));
}

}  // namespace
}  // namespace test
