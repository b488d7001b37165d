// Goal: whatever grows or changes where an attempt's output may be counts, under any name and in folders of any size,
// and what has stopped is seen to have stopped. Method: folders as programs leave them, looked at again and again.
#include "controller/jobs/output_watch.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <utime.h>

#include <fstream>

#include "tests/controller/service/bench.h"

namespace jobs::testing {
namespace {

using ::testing::ElementsAre;
namespace fs = std::filesystem;

class Output : public ::testing::Test {
 protected:
  void grow(const std::string& name) {
    const auto path = folder_.path() / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::app) << "more\n";
  }
  /// True if a change is seen, once, by one who has looked at the folder before.
  bool counts(const std::function<void()>& change, const std::string& part = "") {
    OutputScan scan({folder_.path(), part});
    EXPECT_TRUE(scan.look()) << "nobody knows how old the files are";
    EXPECT_FALSE(scan.look());
    change();
    const bool seen = scan.look();
    EXPECT_FALSE(scan.look()) << "nothing comes any more";
    return seen;
  }
  service::testing::TempFolder folder_;
};

TEST_F(Output, CountsUnderAnyName) {
  for (const std::string name :
       {"model.pt", "model.pt.tmp", ".model.pt.swp", ".tmp-step-3/weights", "events.out.tfevents.1.host", "train.lock",
        "lightning_logs/version_0/checkpoints/last.ckpt", "__pycache__/x", "a/b/c/d/e/f/g/h/i"}) {
    EXPECT_TRUE(counts([&] { grow(name); })) << "new: " << name;
    EXPECT_TRUE(counts([&] { grow(name); })) << "growing: " << name;
    const utimbuf times{1000, 1000};
    EXPECT_TRUE(counts([&] { ::utime((folder_.path() / name).c_str(), &times); })) << "rewritten: " << name;
  }
  EXPECT_TRUE(counts([&] { fs::rename(folder_.path() / "model.pt.tmp", folder_.path() / "model-2.pt"); }));
  EXPECT_TRUE(counts([&] { fs::remove(folder_.path() / "model-2.pt"); }));
  EXPECT_TRUE(counts([&] { fs::create_directory(folder_.path() / "step-9"); }));
  EXPECT_FALSE(counts([] {}));
}

TEST_F(Output, OfATrackerCountsNot) {
  for (const std::string name : {"wandb/run-1/run.wandb", ".neptune/x", "mlruns/0/metrics", "below/.aim/x"}) {
    grow(name);
    EXPECT_FALSE(counts([&] { grow(name); })) << name;
  }
}

TEST_F(Output, OfAFolderThatComesAndGoesCounts) {
  OutputScan scan({folder_.path() / "later", ""});
  EXPECT_TRUE(scan.look());
  EXPECT_FALSE(scan.look());
  grow("later/file");
  EXPECT_TRUE(scan.look());
  EXPECT_FALSE(scan.look());
  fs::remove_all(folder_.path() / "later");
  EXPECT_TRUE(scan.look());
  EXPECT_FALSE(scan.look());
}

TEST_F(Output, CountsOnlyWithItsNameWhereAPlaceHasOne) {
  grow("step-1/model.pt");
  EXPECT_TRUE(counts([&] { grow("step-1/model.pt"); }, "step-"));
  EXPECT_TRUE(counts([&] { grow("tmp-step-2/.part"); }, "step-"));
  EXPECT_FALSE(counts([&] { grow("of-another-job.log"); }, "step-"));
}

TEST_F(Output, OfALargeFolderIsLookedThroughInSeveralLooks) {
  constexpr int kFiles = 95, kWalk = 10;  // looks of ten entries
  for (int i = 0; i < kFiles; ++i) grow("sub" + std::to_string(i % 3) + "/" + std::to_string(i));
  OutputScan scan({folder_.path(), ""}, 10);
  const auto looks_until_quiet = [&] {
    int looks = 0;
    while (scan.look() && looks < 100) ++looks;
    return looks;
  };
  const int first = looks_until_quiet();
  EXPECT_GE(first, 2 * kWalk) << "one walk to know it, two to see that nothing comes";
  EXPECT_LE(first, 3 * kWalk + 3);
  EXPECT_FALSE(scan.look());
  grow("sub1/1");
  int late = 0;
  while (!scan.look()) ASSERT_LT(++late, 2 * kWalk + 2) << "a change behind the walk is seen by the next one";
  EXPECT_GE(looks_until_quiet(), 2 * kWalk - 1);
}

// A time without output ends an attempt. Such a time is never seen where something came in it.
TEST_F(Output, ThatComesAgainAndAgainIsNeverMissedForLonger) {
  for (int i = 0; i < 60; ++i) grow(std::to_string(i));
  for (const int between : {3, 7, 11, 17, 30}) {
    OutputScan scan({folder_.path(), ""}, 10);
    int quiet = 0, longest = 0;
    for (int look = 1; look < 400; ++look) {
      if (look % between == 0) grow(std::to_string(between));
      quiet = scan.look() ? 0 : quiet + 1;
      longest = std::max(longest, quiet);
    }
    EXPECT_LE(longest, between) << between;
  }
}

TEST(OutputPlaces, AreLogsCheckpointsAndWhatReportNames) {
  const common::DataFolder data("/data");
  const core::AttemptKey key{7, 2};
  const auto places_of = [&](const std::string& checkpoints, const std::string& tensorboard) {
    muster::v1::JobSpec spec;
    spec.set_working_folder("/home/ann/work");
    spec.mutable_checkpoint()->set_folder("/shared/ckpt");
    (*spec.mutable_env())["RUN"] = "r1";
    (*spec.mutable_submitted_env())["HOME"] = "/home/ann";
    spec.mutable_report()->set_checkpoints(checkpoints);
    spec.mutable_report()->set_tensorboard(tensorboard);
    auto places = output_places(spec, key, data);
    EXPECT_EQ(places.at(0), (OutputPlace{"/data/jobs/7/attempt-2/logs", ""}));
    EXPECT_EQ(places.at(1), (OutputPlace{"/shared/ckpt", ""}));
    places.erase(places.begin(), places.begin() + 2);
    return places;
  };
  using P = OutputPlace;
  EXPECT_THAT(places_of("", ""), ElementsAre());
  EXPECT_THAT(places_of("ckpt/step-*/model.pt", "runs"),
              ElementsAre(P{"/home/ann/work/ckpt", "step-"}, P{"/home/ann/work/runs", ""}));
  EXPECT_THAT(places_of("ckpt/last.pt", "/tb/$MUSTER_JOB_ID-$MUSTER_ATTEMPT"),
              ElementsAre(P{"/home/ann/work/ckpt", "last.pt"}, P{"/tb/7-2", ""}));
  EXPECT_THAT(places_of("$MUSTER_CHECKPOINT_FOLDER/*", "$HOME/tb/$RUN"),
              ElementsAre(P{"/shared/ckpt", ""}, P{"/home/ann/tb/r1", ""}));
  EXPECT_THAT(places_of("ckpt/step-(*)", "tb/run-$SLURM_JOB_ID/events"),
              ElementsAre(P{"/home/ann/work/ckpt", "step-"}, P{"/home/ann/work/tb", "run-"}));
  EXPECT_THAT(places_of("$SCRATCH/ckpt/*", "${SCRATCH}/tb"), ElementsAre()) << "only the rank knows where that is";
}

}  // namespace
}  // namespace jobs::testing
