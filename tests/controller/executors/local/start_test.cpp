#include "controller/executors/local/start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace executors::local {

class LaunchCheck : public testing::Test {
 protected:
  void SetUp() override {
    auto name = testing::TempDir() + "/check-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
    request_.argv = {"sh"};
    request_.working_folder = path_;
    request_.log_folder = path_ / "logs";
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void file(const std::string& name, std::filesystem::perms mode) {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << "#!/bin/sh\n";
    std::filesystem::permissions(path_ / name, mode);
  }
  std::string refusal() const {
    try {
      check_launch(request_);
    } catch (const Impossible& why) {
      return why.what();
    }
    return "";
  }

  std::filesystem::path path_;
  LaunchRequest request_;
};

using std::filesystem::perms;

TEST_F(LaunchCheck, FindsProgramsInThePathOfTheJob) {
  file("tools/train", perms::owner_all);
  file("first/train", perms::owner_read);  // not executable: passed over, as a shell does
  request_.argv = {"train"};
  request_.env["PATH"] = (path_ / "first").string() + ":/usr/bin:" + (path_ / "tools").string();
  EXPECT_EQ(check_launch(request_), (path_ / "tools/train").string());
  request_.env["PATH"] = "tools";
  EXPECT_EQ(check_launch(request_), (path_ / "tools/train").string()) << "from the working folder";
}

TEST_F(LaunchCheck, TheSubmittersPathCountsWhereTheJobFileNamesNone) {
  file("venv/bin/train", perms::owner_all);
  file("job/train", perms::owner_all);
  request_.argv = {"train"};
  request_.base_env["PATH"] = path_ / "venv/bin";
  EXPECT_EQ(check_launch(request_), (path_ / "venv/bin/train").string());
  request_.env["PATH"] = path_ / "job";
  EXPECT_EQ(check_launch(request_), (path_ / "job/train").string());
}

TEST_F(LaunchCheck, TakesAProgramWithASlashAsItIs) {
  file("train", perms::owner_all);
  request_.argv = {"./train"};
  EXPECT_EQ(check_launch(request_), "./train");
}

TEST_F(LaunchCheck, RefusesMoreThanOneNode) {
  request_.nodes = 2;
  EXPECT_EQ(refusal(), "the local executor has one node; job asks for 2: set nodes = 1, or run it on Slurm");
}

TEST_F(LaunchCheck, WhatLocalProcessesCanNeverBeIsKnownBeforeTheyAreStarted) {
  OwnMachine machine;
  const auto found = [&] {
    std::vector<std::string> out;
    for (const auto& unfit : unfit_for_local(request_, machine, path_)) {
      EXPECT_FALSE(unfit.remedy.empty());
      out.push_back(unfit.field + " " + unfit.value + ": " + unfit.wanted);
    }
    return out;
  };
  using testing::ElementsAre;
  EXPECT_THAT(found(), testing::IsEmpty());
  request_.executor = "slurm";
  EXPECT_THAT(found(), ElementsAre("executor slurm: want auto or local: this musterd has no Slurm"));
  request_.executor = "auto";
  request_.nodes = 3;
  EXPECT_THAT(found(), ElementsAre("resources.nodes 3: want 1: local processes run on this machine alone"));
  request_.nodes = 1;
  request_.wish.gpus_of_rank = 2;
  EXPECT_THAT(found(), ElementsAre("resources.gpus_per_rank 2: want 0: this machine has no GPU"));
  machine.gpus = {{0, "GPU-a"}, {1, "GPU-b"}};
  EXPECT_THAT(found(), testing::IsEmpty());
  request_.ranks_per_node = 2;
  EXPECT_THAT(found(),
              ElementsAre("resources.gpus_per_rank 2: want fewer: it asks for 4 GPUs with its 2 ranks, and this "
                          "machine has 2"));
}

TEST_F(LaunchCheck, AJobThatChoosesItsGpusNeedsAnyThere) {
  request_.wish = {.gpus_of_rank = 2, .chooses_gpus = true};
  EXPECT_EQ(unfit_for_local(request_, {}, path_).size(), 1U);
  file("nvidia0", perms::owner_all);
  EXPECT_TRUE(unfit_for_local(request_, {}, path_).empty());
}

TEST_F(LaunchCheck, NamesWhatIsWrongWithTheProgram) {
  file("plain", perms::owner_read);
  request_.argv = {"./plain"};
  EXPECT_EQ(refusal(), "program ./plain is not executable; make it so with chmod +x ./plain");
  request_.argv = {"./"};
  EXPECT_EQ(refusal(), "program ./ is a folder");
  request_.argv = {"./none"};
  EXPECT_EQ(refusal(), "program ./none not found (looked from the working folder " + path_.string() + ")");
  request_.argv = {"no-such-program"};
  request_.env["PATH"] = "/usr/bin:/bin";
  EXPECT_EQ(refusal(), "program no-such-program not found in PATH (/usr/bin:/bin); give its full path");
  request_.argv = {"plain"};
  request_.env["PATH"] = path_;
  EXPECT_THAT(refusal(),
              testing::EndsWith("/plain is not executable; make it so with chmod +x " + (path_ / "plain").string()));
  request_.argv = {};
  EXPECT_EQ(refusal(), "the command is empty");
}

TEST_F(LaunchCheck, NamesWhatIsWrongWithTheWorkingFolder) {
  request_.working_folder = "relative";
  EXPECT_EQ(refusal(), "working folder \"relative\": want an absolute path");
  file("plain", perms::owner_read);
  request_.working_folder = path_ / "plain";
  EXPECT_EQ(refusal(), "working folder " + (path_ / "plain").string() + " is not a folder");
}

TEST_F(LaunchCheck, RefusesWhatNoProcessCanBeGiven) {
  request_.env["A=B"] = "";
  EXPECT_THAT(refusal(), testing::StartsWith("env \"A=B\": "));
  request_.env = {{"A", std::string("x\0y", 3)}};
  EXPECT_THAT(refusal(), testing::StartsWith("env \"A\": "));
  request_.env = {};
  request_.argv = {"sh", std::string("x\0y", 3)};
  EXPECT_EQ(refusal(), "the command holds a NUL byte: remove it");
  request_.argv = {"sh"};
  request_.ranks_per_node = 0;
  EXPECT_EQ(refusal(), "ranks_per_node = 0: want 1 to 1024");
}

TEST_F(LaunchCheck, RanksSeeTheGpusThatTheirAttemptWasGiven) {
  ::setenv("CUDA_VISIBLE_DEVICES", "4,5", 1);
  EXPECT_EQ(allowed_devices(request_, {}), "4,5") << "nobody knows which GPUs there are";
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(allowed_devices(request_, {}), std::nullopt);
  OwnMachine machine;
  machine.gpus = {{0, "GPU-a"}, {1, "GPU-b"}, {2, "GPU-c"}};
  EXPECT_EQ(allowed_devices(request_, machine), "") << "GPUs go to those who ask for them";
  request_.share = core::MachineShare{{"GPU-c", "GPU-a"}, 0};
  EXPECT_EQ(allowed_devices(request_, machine), "GPU-c,GPU-a");
}

// The kernel shows some, and no driver lists them.
TEST_F(LaunchCheck, RanksSeeNoGpuWhereThereAreSomeThatNobodyKnows) {
  ::setenv("CUDA_VISIBLE_DEVICES", "4,5", 1);
  EXPECT_EQ(allowed_devices(request_, {.hides_gpus = true}), "");
  request_.share = core::MachineShare{{}, 2};
  EXPECT_EQ(allowed_devices(request_, {.hides_gpus = true}), "");
  EXPECT_EQ(allowed_devices(request_, {}), "4,5") << "cores alone say nothing of GPUs";
  request_.share = core::MachineShare{{"GPU-a"}, 2};
  EXPECT_EQ(allowed_devices(request_, {}), "GPU-a") << "it was given before the list was lost";
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

}  // namespace executors::local
