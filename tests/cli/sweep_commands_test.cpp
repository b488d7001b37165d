// Goal: a sweep is submitted in one call, and its jobs are listed, waited for and controlled together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/fake_controller.h"
#include "tests/places.h"
#include "tests/recipe_values.h"

namespace test {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string write_tuning(const FakeController& fake, const std::string& more = "") {
  const auto file = fake.folder().path() / "tune.toml";
  write_file(file, "name = \"tune\"\n[train]\nsteps = 10\n" + more);
  return file;
}

TEST(SubmitSweep, IsOneCallWithEveryCombination) {
  FakeController fake;
  const auto done = fake.muster({"submit", "--sweep", "train.learning_rate=1e-4,3e-4", "--sweep", "seed=0..2",
                                 "--parallel", "2", write_tuning(fake)});
  EXPECT_EQ(done.exit, 0) << done.err;
  EXPECT_EQ(done.out, "s1\n");
  EXPECT_THAT(done.err, HasSubstr("submitted sweep s1: 6 jobs, 1 to 6, 2 at a time; compare them with muster results "
                                  "--sweep s1"));
  fake.with([](FakeState& s) {
    ASSERT_EQ(s.swept.size(), 1U);
    EXPECT_TRUE(s.submitted.empty());
    EXPECT_EQ(s.swept[0].parallel(), 2U);
    EXPECT_EQ(s.swept[0].request_id().size(), 32U);
    ASSERT_EQ(s.swept[0].specs_size(), 6);
    EXPECT_EQ(s.swept[0].specs(5).name(), "tune-0005");
    EXPECT_EQ(s.swept[0].specs(5).sweep().settings().at("train.seed"), "2");
    EXPECT_EQ(test::real(s.swept[0].specs(5), "train.learning_rate"), 3e-4);
  });
}

TEST(SubmitSweep, ATableInTheJobFileIsEnough) {
  FakeController fake;
  fake.with([](FakeState& s) { s.lose_answers = 1; });
  const auto done =
      fake.muster({"submit", "--json", write_tuning(fake, "[sweep]\nparallel = 3\ntrain.seed = \"0..3\"\n")});
  const auto answer = Json::parse(done.out);
  EXPECT_EQ(answer.at("api_version"), "v1");
  EXPECT_EQ(answer.at("sweep"), "s1");
  EXPECT_EQ(answer.at("job_ids"), (Json{1, 2, 3, 4}));
  EXPECT_EQ(answer.at("already_submitted"), true) << "the lost answer made no second sweep";
  fake.with([](FakeState& s) {
    EXPECT_EQ(s.swept[0].parallel(), 3U);
    EXPECT_EQ(s.swept[0].request_id(), s.swept[1].request_id());
  });
}

// A program that makes a sweep knows better than its keys what the jobs differ in.
TEST(SubmitSweep, TheSettingsThatPeopleSeeMayBeGiven) {
  FakeController fake;
  const auto settings = fake.folder().path() / "settings.json";
  const auto submit = [&](const std::string& text) {
    write_file(settings, text);
    return fake.muster({"submit", "--sweep", "seed=0,1", "--sweep-settings", settings, write_tuning(fake)});
  };
  const auto done = submit(R"([{"lr": "0.1", "layers": "[8, 8]"}, {"lr": 3e-4, "wide": true}])");
  EXPECT_EQ(done.exit, 0) << done.err;
  fake.with([](FakeState& s) {
    const auto shown = [&](int job) {
      const auto& all = s.swept.at(0).specs(job).sweep().settings();
      return std::map<std::string, std::string>(all.begin(), all.end());
    };
    EXPECT_EQ(shown(0), (std::map<std::string, std::string>{{"lr", "0.1"}, {"layers", "[8, 8]"}}));
    EXPECT_EQ(shown(1), (std::map<std::string, std::string>{{"lr", "0.0003"}, {"wide", "true"}}));
    EXPECT_EQ(whole(s.swept[0].specs(1), "train.seed"), 1) << "the job itself is the same";
  });
  const std::pair<const char*, const char*> bad[] = {
      {"lr", "want a JSON array with an object for each job"},
      {R"([{"lr": 1}])", "has settings of 1 jobs, and the sweep has 2"},
      {R"([{"lr": 1}, {"lr": [1]}])", "job 1: \"lr\" is array; want a text, a number, true or false"},
      {R"([{"": 1}, {}])", "job 0: want names of 1 to 128 bytes"}};
  for (const auto& [text, says] : bad) {
    const auto refused = submit(text);
    EXPECT_EQ(refused.exit, 2) << text;
    EXPECT_THAT(refused.err, HasSubstr(says));
  }
  const auto single = fake.muster({"submit", "--sweep-settings", settings, write_tuning(fake)});
  EXPECT_THAT(single.err, HasSubstr("--sweep-settings is for sweeps"));
}

TEST(SubmitSweep, NothingIsSentUnlessAllOfItIsRight) {
  FakeController fake;
  struct Case {
    std::vector<std::string> more;
    const char* says;
  };
  const Case cases[] = {
      {{"--sweep", "train.learning_rate=1e-4,0"}, "--sweep train.learning_rate=0: want a number above 0"},
      {{"--sweep", "sede=1"}, "--sweep sede=1: unknown key, did you mean train.seed"},
      {{"--sweep", "seed=1", "--sweep", "train.seed=2"}, "--sweep train.seed=2: train.seed varies already"},
      {{"--sweep", "seed=1,2", "--follow"}, "--follow shows one job, and this is a sweep of 2; use --wait"},
      {{"--parallel", "2"}, "--parallel is for sweeps; add --sweep"},
      {{"--sweep", "seed=0,1", "--parallel", "2", "--set", "slurm.array_parallelism=1"},
       "--parallel 2: slurm.array_parallelism is 1: want either muster's limit or that of Slurm's arrays"}};
  for (const auto& [more, says] : cases) {
    std::vector<std::string> arguments{"submit", write_tuning(fake)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto done = fake.muster(arguments);
    EXPECT_EQ(done.exit, 2) << says;
    EXPECT_EQ(done.out, "") << says;
    EXPECT_THAT(done.err, HasSubstr(says));
  }
  EXPECT_TRUE(fake.get<bool>([](FakeState& s) { return s.swept.empty() && s.submitted.empty(); }));
}

TEST(SubmitSweep, WaitReturnsWhenAllHaveEnded) {
  FakeController fake;
  const auto fine = fake.muster({"submit", "--wait", "--sweep", "seed=0..2", write_tuning(fake)});
  EXPECT_EQ(fine.exit, 0) << fine.err;
  EXPECT_THAT(fine.err, HasSubstr("sweep s1: 3 of 3 succeeded"));
  // One job fails while muster waits for another.
  const auto err = fake.folder().path() / "err";
  fake.with([](FakeState& s) { s.submit_state = "running"; });
  Process waiting({::test::built_program("muster"), "submit", "--wait", "--sweep", "seed=0..2", write_tuning(fake)},
                  fake.environment(), fake.folder().path() / "out", err);
  ASSERT_TRUE(eventually([&] { return fake.get<int>([](FakeState& s) { return s.watchers; }) == 1; }, 20s));
  fake.with([](FakeState& s) {
    for (std::size_t i = 3; i < 6; ++i) s.jobs[i].set_state(i == 4 ? "failed" : "succeeded");
  });
  EXPECT_EQ(waiting.wait(20s), 1);
  EXPECT_THAT(read_file(err), AllOf(HasSubstr("muster: job 5 failed: "),
                                    HasSubstr("sweep s4: 2 of 3 succeeded; look at muster show 5")));
}

TEST(List, OfASweepShowsItsSettings) {
  FakeController fake;
  fake.muster({"submit", "--sweep", "seed=0..2", write_tuning(fake)});
  fake.with([](FakeState& s) { s.jobs.push_back(sample_job(4, "running")); });
  const auto sweep = fake.muster({"list", "--sweep", "s1"}).out;
  EXPECT_THAT(sweep,
              AllOf(HasSubstr("SETTINGS"), HasSubstr("seed=2"), HasSubstr("tune-0002"), Not(HasSubstr("manpages"))));
  EXPECT_THAT(fake.muster({"list"}, {{"COLUMNS", "140"}}).out, AllOf(HasSubstr("SWEEP"), HasSubstr("s1")));
  EXPECT_EQ(Json::parse(fake.muster({"list", "--json", "--sweep", "s1"}).out).size(), 3U);
  EXPECT_EQ(fake.muster({"list", "--json", "--sweep", "s99"}).exit, 3) << "as show does of a job";
}

TEST(Control, OfASweepAsksThoseThatAllowIt) {
  FakeController fake;
  fake.muster({"submit", "--sweep", "seed=0..2", write_tuning(fake)});
  EXPECT_EQ(fake.muster({"hold", "--sweep", "s1"}).exit, 2) << "all have ended";
  fake.with([](FakeState& s) {
    s.jobs[0].set_state("pending");
    s.jobs[2].set_state("running");
  });
  const auto held = fake.muster({"hold", "--sweep", "s1"});
  EXPECT_EQ(held.exit, 0) << held.err;
  EXPECT_THAT(held.out, AllOf(HasSubstr("job 1 "), HasSubstr("job 3 "), Not(HasSubstr("job 2 "))));
  EXPECT_THAT(held.err, HasSubstr("2 of 3 jobs; the states of the others do not allow it"));
  EXPECT_EQ(Json::parse(fake.muster({"release", "--sweep", "s1", "--json"}).out).size(), 2U);
  EXPECT_EQ(fake.muster({"cancel", "--sweep", "s1"}).exit, 0);
  EXPECT_EQ(fake.muster({"requeue", "--sweep", "s1"}).exit, 0);
  fake.with([](FakeState& s) {
    EXPECT_THAT(s.asked,
                ElementsAre("hold sweep s1 by someone", "hold sweep s1 by someone", "release sweep s1 by someone",
                            "cancel sweep s1 by someone", "requeue sweep s1 by someone"))
        << "one call each";
  });
  EXPECT_EQ(fake.muster({"cancel", "--sweep", "s99"}).exit, 3);
  EXPECT_EQ(fake.muster({"cancel"}).exit, 2);
  EXPECT_EQ(fake.muster({"cancel", "1", "--sweep", "s1"}).exit, 2);
}

}  // namespace
}  // namespace test
