#include "agent/program/before_start.h"

#include <gmock/gmock.h>

#include "agent/protocol/launch.h"
#include "agent/watch/agent_files.h"
#include "base/durable_file.h"
#include "spec/variables.h"
#include "tests/temporary_folder.h"

// Goal: an element of an array begins as if musterd had made its files when it handed it over, and an attempt that is
// over already begins not at all.
// Method: the files of an array as musterd writes them, and what the batch script calls.
namespace agent::program {
namespace {

namespace fs = std::filesystem;
namespace variable = spec::variable;
using namespace std::chrono_literals;
using testing::HasSubstr;

class Prepare : public testing::Test {
 protected:
  Prepare() { fs::create_directories(set()); }

  fs::path set() const { return data_ / "slurm/set-1.1"; }
  fs::path attempt(int job) const { return data_ / ("jobs/" + std::to_string(job) + "/attempt-1"); }
  fs::path checkpoints(int job) const { return data_ / ("jobs/" + std::to_string(job) + "/checkpoints"); }
  protocol::Launch launch(int job) const {
    return {.argv = {"/bin/true"},
            .env = {{variable::kJobId, std::to_string(job)},
                    {variable::kAttempt, "1"},
                    {variable::kRunFile, attempt(job) / "run.json"}},
            .working_folder = "/",
            .log_folder = attempt(job) / "logs",
            .job_name = "element",
            .fence_folder = checkpoints(job),
            .log_link = "",
            .unprepared = true,
            .run_file = "{\n  \"name\": \"" + std::to_string(job) + "\"\n}\n",
            .cache_folder = data_ / "cache"};
  }
  void write(const std::vector<protocol::Launch>& launches) const {
    std::vector<std::string> folders;
    for (std::size_t i = 0; i < launches.size(); ++i) folders.push_back(attempt(static_cast<int>(i) + 1));
    base::write_file_durably(set() / protocol::kSetFile, protocol::to_set_text(folders));
    base::write_file_durably(set() / protocol::kSetLaunchFile, protocol::to_set_launch_text(launches));
  }
  void prepare(std::uint32_t index) const {
    prepare_element(set() / protocol::kSetFile, index, attempt(static_cast<int>(index) + 1));
  }

  test::TemporaryFolder data_;
};

TEST_F(Prepare, MakesTheFoldersOfOneElementAndTouchesNoOther) {
  write({launch(1), launch(2), launch(3)});
  prepare(1);
  EXPECT_EQ(protocol::read_launch(attempt(2)), launch(2));
  EXPECT_EQ(test::read_file(attempt(2) / "run.json"), launch(2).run_file);
  EXPECT_EQ(watch::read_fence(checkpoints(2)), (protocol::Fence{2, 1}));
  EXPECT_EQ(protocol::parse_element(test::read_file(attempt(2) / protocol::kElementFile)),
            (protocol::ElementPlace{set(), 1}));
  EXPECT_TRUE(fs::is_directory(attempt(2) / "logs"));
  EXPECT_TRUE(fs::is_directory(data_ / "cache"));
  EXPECT_FALSE(fs::exists(attempt(1).parent_path()));
  EXPECT_EQ(fs::status(attempt(2) / "launch.json").permissions(), fs::perms(0600));
  prepare(1);  // as after a crash in the middle
  EXPECT_EQ(watch::read_fence(checkpoints(2)), (protocol::Fence{2, 1}));
}

// musterd gave the attempt up, and the next one has the folder.
TEST_F(Prepare, OfAnAttemptThatIsOverSaysSoAndLeavesTheFence) {
  write({launch(1)});
  watch::raise_fence(checkpoints(1), {1, 2}, 1s);
  try {
    prepare(0);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("its attempt is over already"));
  }
  EXPECT_EQ(watch::read_fence(checkpoints(1)), (protocol::Fence{1, 2}));
  EXPECT_FALSE(fs::exists(attempt(1) / "launch.json"));
  EXPECT_TRUE(fs::exists(attempt(1) / protocol::kElementFile)) << "it tells where the log is";
}

// The folder that a job file names is fenced when the attempt is handed over. Another job may have it by now.
TEST_F(Prepare, TakesNoFolderBackThatMusterdHasFenced) {
  auto prepared = launch(1);
  prepared.unprepared = false;
  write({prepared});
  watch::raise_fence(checkpoints(1), {9, 1}, 1s);
  prepare(0);
  EXPECT_EQ(watch::read_fence(checkpoints(1)), (protocol::Fence{9, 1})) << "muster-agent sees it and leaves";
}

TEST_F(Prepare, SaysWhichFileIsMissing) {
  try {
    prepare(0);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("set_launch.json cannot be read"));
  }
}

}  // namespace
}  // namespace agent::program
