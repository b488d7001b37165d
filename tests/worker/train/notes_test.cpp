// Goal: what people would want to know of an attempt is told as a note of the job, not in a log alone: settings that
// differ from those of its checkpoint, and jobs that export to one place.
// Method: Trainers in this process, whose reporter keeps what is told to a controller.
#include <gmock/gmock.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "fsdp/files/export.h"
#include "tests/worker/temporary_folder.h"
#include "tests/worker/trainer_ranks.h"
#include "worker/train/export_trained.h"

namespace worker::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// The notes of an attempt of two ranks.
std::vector<std::string> notes_of(const RunConfig& config, std::int64_t attempt) {
  std::vector<Listener> ranks(2);
  train(config, ranks, attempt);
  EXPECT_EQ(ranks[0].words.total_steps, config.train.steps) << "a note leaves the other words";
  return {ranks[0].words.note, ranks[1].words.note};
}

TEST(Notes, TellWhichSettingsDifferFromThoseOfTheCheckpoint) {
  const TemporaryFolder folder;
  const auto run = [&](const std::string& train) { return run_of(folder, R"(,"warmup_steps":0,"steps":)" + train); };
  EXPECT_THAT(notes_of(run(R"(2,"batch_size":8)"), 1), ElementsAre("", ""));
  EXPECT_THAT(notes_of(run(R"(2,"batch_size":8)"), 2), ElementsAre("", "")) << "nothing differs";
  EXPECT_THAT(notes_of(run(R"(4,"batch_size":16,"beta2":0.5)"), 3),
              ElementsAre(AllOf(HasSubstr("goes on from step 2 with other settings: "),
                                HasSubstr("train.batch_size = 16 (8 until then)"), HasSubstr("train.beta2 = 0.5 ("),
                                HasSubstr("train.steps = 4 (2 until then)")),
                          ""));
}

std::string note_of(const RunConfig& config, const std::function<void()>& on_step = {}) {
  std::vector<Listener> ranks(1);
  ranks[0].on_step = on_step;
  train(config, ranks);
  return ranks[0].words.note;
}

class ExportNotes : public ::testing::Test {
 protected:
  RunConfig run(const std::string& name, const std::string& checkpoints) const {
    RunConfig config = run_of(folder_, R"(,"steps":2)", "", checkpoints);
    config.name = name;
    config.exports.folder = (folder_ / "out").native() + "/";
    config.exports.full_state_file = (folder_ / "new/state.safetensors").native();
    return config;
  }
  TemporaryFolder folder_;
};

TEST_F(ExportNotes, TellOfTheExportThatWillBeReplaced) {
  EXPECT_EQ(note_of(run("first", "a")), "");
  EXPECT_EQ(fsdp::export_origin(folder_ / "out"), "the run first");
  EXPECT_EQ(note_of(run("first", "b")), "") << "its own export";
  EXPECT_THAT(note_of(run("second", "c")),
              AllOf(HasSubstr("train.export_folder = \"" + (folder_ / "out").native() +
                              "/\" holds the export of the run first, which this one replaces"),
                    HasSubstr("train.full_state_file = \"" + (folder_ / "new/state.safetensors").native() +
                              "\" holds the export of the run first")));
  EXPECT_EQ(fsdp::export_origin(folder_ / "out"), "the run second");
}

// Both hear of each other, whichever began first.
TEST_F(ExportNotes, TellJobsThatRunAtOneTimeOfEachOther) {
  const RunConfig other = run("second", "b");
  std::vector<std::string> told_to_second;
  const std::string told_to_first = note_of(run("first", "a"), [&] {
    ExportClaims claims(other, {});
    const auto told = claims.announce();
    told_to_second.insert(told_to_second.end(), told.begin(), told.end());
  });
  ASSERT_FALSE(told_to_second.empty());
  EXPECT_THAT(
      told_to_second[0],
      HasSubstr("is also where the run first exports, unless it has ended without one; the later export replaces"));
  EXPECT_THAT(told_to_first, AllOf(HasSubstr("train.export_folder = "), HasSubstr("train.full_state_file = "),
                                   HasSubstr("is also where the run second exports")));
  EXPECT_TRUE(std::filesystem::exists(export_claim_file(other.exports.folder))) << "it is the second run's now";
  EXPECT_THAT(note_of(other), HasSubstr("holds the export of the run first"));
  for (const auto& target : {other.exports.folder, other.exports.full_state_file})
    EXPECT_FALSE(std::filesystem::exists(export_claim_file(target))) << "nothing stays";
}

TEST_F(ExportNotes, NameTheJobWhereThereIsAController) {
  agent::rank::RankEnvironment environment;
  environment.job_id = "7";
  ExportClaims of_job(run("same", "a"), environment);
  EXPECT_EQ(of_job.owner(), "job 7");
  EXPECT_THAT(of_job.announce(), IsEmpty());
  EXPECT_THAT(of_job.announce(), IsEmpty()) << "the next attempt of the job";
  environment.job_id = "8";
  ExportClaims of_other(run("same", "b"), environment);
  EXPECT_THAT(of_other.announce(),
              ElementsAre(HasSubstr("is also where job 7 exports"), HasSubstr("is also where job 7 exports")));
  EXPECT_THAT(of_other.news(), IsEmpty()) << "told once";
  of_job.withdraw();
  EXPECT_THAT(of_job.news(), ElementsAre(HasSubstr("job 8"), HasSubstr("job 8"))) << "another's claim stays";
}

// Neither a claim nor its lack may end a training.
TEST_F(ExportNotes, AreLeftOutWherePlacesCannotBeRead) {
  RunConfig config = run("first", "a");
  test::write_file(folder_ / "file", "no folder");
  config.exports.folder = (folder_ / "file/out").native();
  config.exports.full_state_file.clear();
  ExportClaims claims(config, {});
  EXPECT_THAT(claims.announce(), IsEmpty());
  EXPECT_THAT(claims.news(), IsEmpty());
  claims.withdraw();
}

}  // namespace
}  // namespace worker::testing
