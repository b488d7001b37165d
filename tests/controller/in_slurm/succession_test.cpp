// Goal: one successor of musterd's Slurm job is queued whatever happens, and of two musterd the older one leaves.
// Method: the steps of the succession, called by the test, before a Slurm in memory.
#include "controller/in_slurm/succession.h"

#include <gmock/gmock.h>

#include "base/durable_file.h"
#include "tests/controller/executors/slurm/fake_scheduler.h"
#include "tests/held_lock.h"
#include "tests/temporary_folder.h"

namespace in_slurm {
namespace {

using executors::on_slurm::testing::FakeScheduler;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SuccessionOfMusterd : public ::testing::Test {
 protected:
  SuccessionOfMusterd() {
    base::write_file_durably(script_file(data()), script());
    slurm_.submit(script(), {}, {}, {});
    own_ = slurm_.jobs.begin()->first;
    set_state(slurm::JobState::kRunning);
    succession_.emplace(
        slurm_, OwnJob{data(), own_, "ada"}, [this](const auto& why) { left_.push_back(why); }, false);
  }
  const std::filesystem::path& data() const { return folder_.path(); }
  std::string script() const { return slurm::render(script_of(data(), {"musterd"}, data() / "log", {}, {})); }
  void set_state(slurm::JobState state) { slurm_.jobs.at(own_).state = {state, std::string(slurm::name(state)), {}}; }
  /// Until Slurm has been asked once more.
  void look() {
    const auto asked = slurm_.calls_to_list;
    while (slurm_.calls_to_list == asked) {
      if (succession_->step() == std::nullopt) break;
    }
  }
  std::size_t queued() {
    std::vector<slurm::ListedJob> jobs;
    for (const auto& [id, job] : slurm_.jobs) jobs.push_back(job);
    return standing_of(jobs, comment_of(data())).queued.size();
  }

  test::TemporaryFolder folder_;
  FakeScheduler slurm_;
  slurm::JobId own_;
  std::vector<std::string> left_;
  std::optional<Succession> succession_;
};

TEST_F(SuccessionOfMusterd, IsOneHoweverOftenItIsLookedFor) {
  for (int i = 0; i < 3; ++i) look();
  EXPECT_EQ(queued(), 1U);
  EXPECT_THAT(slurm_.environment, ::testing::Contains(::testing::Key("PATH")));
  EXPECT_EQ(slurm_.environment.count("MUSTER_TOKEN"), 0U);
  slurm_.cancel({std::next(slurm_.jobs.begin())->first});
  look();
  EXPECT_EQ(queued(), 1U) << "an admin has cancelled it";
  slurm_.submit(script(), {}, {}, {});
  EXPECT_EQ(queued(), 2U) << "two persons have said muster up at once";
  look();
  EXPECT_EQ(queued(), 1U);
  EXPECT_THAT(succession_->problem(), IsEmpty());
  EXPECT_THAT(left_, IsEmpty());
}

TEST_F(SuccessionOfMusterd, IsNotDoubledByALostAnswer) {
  slurm_.submits = FakeScheduler::Submits::kTakesSilently;
  look();
  EXPECT_THAT(succession_->problem(), HasSubstr("no successor of Slurm job 1 is queued"));
  look();
  EXPECT_EQ(queued(), 1U);
  EXPECT_THAT(succession_->problem(), IsEmpty());
}

TEST_F(SuccessionOfMusterd, IsToldToBeMissing) {
  slurm_.submits = FakeScheduler::Submits::kRefuses;
  look();
  EXPECT_EQ(succession_->problem(),
            "no successor of Slurm job 1 is queued, so musterd ends with this job: Invalid partition name specified; "
            "musterd tries again");
  slurm_.submits = FakeScheduler::Submits::kTakes;
  std::filesystem::remove(script_file(data()));
  look();
  EXPECT_EQ(queued(), 0U) << "muster down has removed the script";
  EXPECT_THAT(succession_->problem(), HasSubstr("musterd.sbatch is not there; muster up --in-slurm writes it again"));
  slurm_.set_lists(false);
  look();
  EXPECT_THAT(succession_->problem(), HasSubstr("is not known: squeue: Unable to contact slurm controller"));
  EXPECT_THAT(left_, IsEmpty()) << "a silent Slurm says nothing of this job";
}

TEST_F(SuccessionOfMusterd, TakesOverFromOneThatSlurmHasGivenUp) {
  set_state(slurm::JobState::kNodeFail);
  EXPECT_EQ(succession_->step(), std::nullopt);
  EXPECT_THAT(left_, ::testing::ElementsAre("Slurm says that job 1, in which this musterd runs, is NODE_FAIL"));
  EXPECT_EQ(queued(), 0U) << "what is over has no successor of its own";
}

TEST_F(SuccessionOfMusterd, IsQueuedByAMusterdThatEndsBeforeItIsReady) {
  succession_->queue_and_stop();
  EXPECT_EQ(queued(), 1U);
}

TEST_F(SuccessionOfMusterd, IsNotJudgedByTheNumberOfAnotherJob) {
  set_state(slurm::JobState::kCompleted);
  slurm_.jobs.at(own_).comment = "a job that got the number after slurmctld had lost its last seconds";
  look();
  EXPECT_THAT(left_, IsEmpty());
}

TEST_F(SuccessionOfMusterd, TakesOverWhereALockDoesNotReachOtherHosts) {
  claim({data(), own_, "ada"});
  look();
  EXPECT_THAT(left_, IsEmpty());
  base::write_file_durably(data() / "musterd.claim", "2 node2 7\n");
  EXPECT_EQ(succession_->step(), std::nullopt);
  ASSERT_EQ(left_.size(), 1U);
  EXPECT_THAT(left_.front(), HasSubstr("another musterd has claimed " + data().native()));
  EXPECT_THAT(left_.front(), HasSubstr("2 node2 7"));
}

TEST_F(SuccessionOfMusterd, WaitsWhereAnotherMayRunUnseen) {
  EXPECT_EQ(wait_after_claim(data()), core::Millis(0)) << "the one before has left in order";
  base::write_file_durably(data() / "musterd.json", R"({"pid":7,"host":"node2","grpc":"0.0.0.0:1"})");
  const auto lock = test::hold_lock(data());
  EXPECT_GT(wait_after_claim(data()), 2 * Succession::kLookEvery);
}

TEST(AddressOfANode, IsWhatSlurmConnectsTo) {
  FakeScheduler slurm;
  auto& node = slurm.all_nodes.emplace_back();
  node.name = "node1", node.address = "10.0.0.7";
  EXPECT_EQ(address_of_node(slurm, "node1"), "10.0.0.7");
  EXPECT_EQ(address_of_node(slurm, "node2"), "");
}

}  // namespace
}  // namespace in_slurm
