// Goal: musterd refuses to start on a copied data folder, and a fork does not touch the original's jobs.
// Method: real folders and copies of them; places of other disks and machines are written by hand.
#include "controller/musterd/place.h"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/usage_error.h"
#include "tests/controller/store/memory_store.h"
#include "tests/temporary_folder.h"

namespace musterd {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

const Place kKnown{"/shared/muster", "head1", 7, 42};

TEST(Place, IsTheSameFolderWhateverIsGivenAnew) {
  EXPECT_TRUE(is_same_folder(kKnown, kKnown));
  EXPECT_TRUE(is_same_folder(kKnown, {"/shared/muster", "head1", 9, 42})) << "device numbers after a restart";
  EXPECT_TRUE(is_same_folder(kKnown, {"/shared/muster", "head2", 9, 42})) << "another head node takes over";
  EXPECT_TRUE(is_same_folder(kKnown, {"/shared/renamed", "head1", 7, 42})) << "mv";
}

TEST(Place, MayBeACopyOtherwise) {
  EXPECT_FALSE(is_same_folder(kKnown, {"/shared/copy", "head1", 7, 43})) << "cp -a";
  EXPECT_FALSE(is_same_folder(kKnown, {"/shared/muster", "head1", 7, 43})) << "a restored one in its place";
  EXPECT_FALSE(is_same_folder(kKnown, {"/snapshot/muster", "head1", 8, 42})) << "a snapshot";
  EXPECT_FALSE(is_same_folder(kKnown, {"/other/muster", "head2", 7, 42})) << "another machine's numbers";
}

// The root folders of all ext4 disks have inode 2.
TEST(Place, ACopyOnADiskOfItsOwnAtTheSamePathHasAnotherBirth) {
  const Place original{"/data", "head1", 7, 2, 1'700'000'000'000'000'000};
  EXPECT_FALSE(is_same_folder(original, {"/data", "head2", 9, 2, 1'800'000'000'000'000'000}));
  EXPECT_FALSE(is_same_folder(original, {"/data", "head1", 7, 2, 1'800'000'000'000'000'000}));
  EXPECT_TRUE(is_same_folder(original, {"/data", "head1", 9, 2, 1'700'000'000'000'000'000})) << "mounted again";
  EXPECT_TRUE(is_same_folder(original, {"/data", "head1", 9, 2, 0})) << "a kernel that does not tell";
  EXPECT_TRUE(is_same_folder({"/data", "head1", 7, 2, 0}, original)) << "noted by an earlier muster";
  EXPECT_FALSE(is_same_folder({"/data", "head1", 7, 2, 0, 11}, {"/data", "head2", 7, 2, 0, 12})) << "another disk";
  EXPECT_TRUE(is_same_folder({"/data", "head1", 7, 2, 0, 11}, {"/data", "head1", 7, 2, 5, 0}));
}

class Settle : public ::testing::Test {
 protected:
  Settle() {
    for (const char* name : {"original", "copy"}) fs::create_directories(root_ / name);
    settle(store_, root_ / "original", Relocation::kNone, now_);
  }

  core::Job submit(core::JobId id, std::vector<core::EventBody> more) {
    core::Job job;
    job.id = id;
    core::JobSubmitted submitted;
    submitted.name = "job";
    submitted.user = "ada";
    more.insert(more.begin(), submitted);
    for (auto& body : more) {
      const core::Event event{now_, std::move(body)};
      const store::Commit commit{event, store::shared(core::apply(job, event)), "", "{}"};
      store_.append({&commit, 1});
      job = commit.applied->job;
    }
    return job;
  }
  std::string refusal(const fs::path& folder, Relocation relocation) {
    try {
      settle(store_, folder, relocation, now_);
    } catch (const base::UsageError& error) {
      return error.what();
    }
    return "";
  }

  const test::TemporaryFolder folder_;
  const fs::path root_ = fs::canonical(folder_.path());
  const core::Time now_ = std::chrono::floor<core::Millis>(std::chrono::system_clock::now());
  store::MemoryStore store_;
};

TEST_F(Settle, ACopyRefusesAndNamesBothPlacesAndBothWaysOn) {
  const auto place = store_.place();
  EXPECT_THAT(refusal(root_ / "copy", Relocation::kNone),
              AllOf(HasSubstr((root_ / "original").string()), HasSubstr((root_ / "copy").string()),
                    HasSubstr("--moved"), HasSubstr("--fork")));
  EXPECT_EQ(store_.place(), place) << "and again the next time";
}

TEST_F(Settle, WhatHasMovedGoesOnWithItsJobs) {
  submit(1, {});
  const auto secret = store_.secret();
  EXPECT_EQ(refusal(root_ / "copy", Relocation::kMoved), "");
  EXPECT_EQ(refusal(root_ / "copy", Relocation::kNone), "") << "it is at home there now";
  EXPECT_EQ(store_.secret(), secret);
  EXPECT_EQ(store_.load(1)->state, core::JobState::kPending);
  EXPECT_EQ(store_.pending_actions().size(), 1U);
}

TEST_F(Settle, AFolderOfAnotherBirthOrDiskRefusesAndAPlaceWithoutTheseLearnsThem) {
  const auto here = place_of(root_ / "original");
  if (here.birth_ns == 0 && here.fs_id == 0) GTEST_SKIP() << "this file system tells neither";
  const auto kept = nlohmann::json::parse(store_.place());
  for (const char* what : {"birth_ns", "fs_id"}) {
    auto other = kept;
    if (other.at(what) == 0) continue;
    other[what] = other.at(what).get<std::uint64_t>() - 1;
    store_.settle(other.dump(), false);
    EXPECT_THAT(refusal(root_ / "original", Relocation::kNone), HasSubstr("the data folder is a copy, or has moved"));
  }
  auto old = kept;
  old.erase("birth_ns");
  old.erase("fs_id");
  store_.settle(old.dump(), false);
  EXPECT_EQ(refusal(root_ / "original", Relocation::kNone), "");
  EXPECT_EQ(nlohmann::json::parse(store_.place()), kept);
}

TEST_F(Settle, ARenamedFolderIsTheSameOne) {
  fs::rename(root_ / "original", root_ / "renamed");
  EXPECT_EQ(refusal(root_ / "renamed", Relocation::kNone), "");
  EXPECT_THAT(store_.place(), HasSubstr("renamed"));
}

TEST_F(Settle, AForkHasAnotherNameAndNothingToDoForTheOriginalsJobs) {
  submit(1, {});
  submit(2, {core::AttemptLaunched{1, "slurm:7", "", {}, true}});
  submit(3, {core::AttemptLaunched{1, "", "node1", {5}}, core::RankJoined{1, 0, "node1", 5}});
  submit(4, {core::AttemptLaunched{1, "", "node1", {5}}, core::RequeueRequested{"ada"}});
  submit(5, {core::HoldRequested{"ada"}});
  submit(6, {core::AttemptLaunched{1, "", "node1", {6}}, core::RankJoined{1, 0, "node1", 6},
             core::RankExited{1, 0, {0, 0}, false, ""}});
  std::ofstream(root_ / "copy" / "ports.json") << "{}";
  const auto secret = store_.secret();
  EXPECT_EQ(refusal(root_ / "copy", Relocation::kFork), "");
  EXPECT_NE(store_.secret(), secret);
  EXPECT_TRUE(store_.load_open().empty());
  EXPECT_TRUE(store_.pending_actions().empty()) << "nothing is stopped, started or held";
  for (core::JobId id = 1; id <= 5; ++id) {
    const auto job = store_.load(id);
    EXPECT_EQ(job->state, core::JobState::kCancelled) << id;
    EXPECT_THAT(job->reason, HasSubstr("the job stays with the controller whose data folder was copied")) << id;
    for (const auto& attempt : job->attempts) EXPECT_EQ(attempt.state, core::AttemptState::kEnded) << id;
  }
  EXPECT_EQ(store_.load(6)->state, core::JobState::kSucceeded) << "what had ended is history";
  EXPECT_FALSE(fs::exists(root_ / "copy" / "ports.json")) << "the original's ranks know those";
  EXPECT_EQ(refusal(root_ / "copy", Relocation::kNone), "");
  const auto forked = store_.secret();
  EXPECT_EQ(refusal(root_ / "copy", Relocation::kFork), "") << "a unit file may keep the flag";
  EXPECT_EQ(store_.secret(), forked);
}

TEST_F(Settle, TheOriginalIsNeverForked) {
  submit(1, {});
  EXPECT_THAT(refusal(root_ / "original", Relocation::kFork), HasSubstr("is not a copy"));
  EXPECT_EQ(store_.load_open().size(), 1U);
}

TEST(SettleOld, AStoreWithoutAPlaceTakesTheFirst) {
  store::MemoryStore old;
  const test::TemporaryFolder folder;
  EXPECT_NO_THROW(settle(old, folder.path(), Relocation::kNone, {}));
  EXPECT_THAT(old.place(), HasSubstr(folder.path().filename().string()));
}

}  // namespace
}  // namespace musterd
