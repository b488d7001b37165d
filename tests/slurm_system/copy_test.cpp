// Goal: a copy of a data folder that is started beside the original touches no Slurm job of the original.
// Method: real Slurm; one job of the original runs and one waits while its data folder is copied and the copy is
// started, first as it is and then with --fork.
#include "tests/slurm_system/story.h"

namespace story {
namespace {

using testing::HasSubstr;

/// Copies a living data folder as cp -a does, but without its sockets and musterd.json.
void copy_folder(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::filesystem::create_directory(to);
  std::filesystem::permissions(to, std::filesystem::perms::owner_all);
  for (const auto& entry : std::filesystem::directory_iterator(from)) {
    if (entry.is_socket() || entry.path().filename() == "musterd.json") continue;
    std::filesystem::copy(entry.path(), to / entry.path().filename(), std::filesystem::copy_options::recursive);
  }
}

struct Copy;
class SlurmCopy : public Story<Copy> {
 public:
  static void SetUpTestSuite() { set_up({.nodes = 2}); }

 protected:
  /// A musterd on the copied folder, with the same Slurm.
  static test::World::Options beside(const std::filesystem::path& data, std::vector<std::string> flags) {
    test::World::Options options;
    options.data = data;
    options.daemon_flags = std::move(flags);
    options.daemon_environment = slurm().env();
    return options;
  }
};

TEST_F(SlurmCopy, AForkBesideTheOriginalCancelsNothingOfItInSlurm) {
  const auto marks = muster().folder() / "marks", end = muster().folder() / "end";
  const auto ran = [&](const std::string& name) {
    return shell({.script = "echo " + name + " >> " + marks.string() + "; while [ ! -e " + end.string() +
                            " ]; do sleep 0.1; done"});
  };
  const auto running = muster().submit(ran("running"));
  ASSERT_TRUE(test::eventually([&] { return test::read_file(marks) == "running\n"; }, 60s));
  for (const char* node : {"node1", "node2"}) {
    slurm().run({"scontrol", "update", std::string("nodename=") + node, "state=drain", "reason=test"});
  }
  const auto waiting = muster().submit(ran("waiting"));
  stage().until_handed_over(waiting);
  const auto copy = muster().folder() / "copy";
  copy_folder(muster().data(), copy);

  {
    test::World as_it_is(beside(copy, {}));
    auto& refused = as_it_is.launch_daemon();
    EXPECT_EQ(refused.wait(30s), 2);
    for (const auto& word : {muster().data().string(), copy.string(), std::string("--moved"), std::string("--fork")}) {
      EXPECT_THAT(as_it_is.daemon_log(), HasSubstr(word));
    }
    std::filesystem::rename(copy, muster().folder() / "copied");
  }
  {
    test::World fork(beside(muster().folder() / "copied", {"--fork"}));
    fork.start_daemon();
    for (const auto& job : {running, waiting}) {
      const auto shown = fork.until_state(job, "cancelled");
      EXPECT_THAT(text(shown, "reason"), HasSubstr("stays with the controller whose data folder was copied"));
    }
    const auto own = fork.submit(shell({.script = "true"}));
    fork.until(own, [](const Json& job) { return job.at("state") == "queued"; });
    for (const char* node : {"node1", "node2"}) {
      slurm().run({"scontrol", "update", std::string("nodename=") + node, "state=resume"});
    }
    fork.until_state(own, "succeeded");
  }
  for (const auto& job : {running, waiting}) {
    const auto shown = muster().show(job);
    EXPECT_EQ(text(shown, "state"), "running") << shown.dump(1);
  }
  test::write_file(end, "");
  for (const auto& job : {running, waiting}) {
    EXPECT_EQ(muster().until_state(job, "succeeded").at("attempts").size(), 1U);
    EXPECT_EQ(stage().submissions_of(job, 1), 1);
  }
  EXPECT_EQ(test::read_file(marks), "running\nwaiting\n") << "each ran once";
}

}  // namespace
}  // namespace story
