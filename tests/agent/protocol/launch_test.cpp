#include "agent/protocol/launch.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/temporary_folder.h"

// Goal: an agent starts what musterd meant, and says what is wrong with a file in words that help.
namespace agent::protocol {
namespace {

using testing::HasSubstr;

class LaunchFile : public testing::Test {
 protected:
  std::filesystem::path at(const std::string& name) const { return folder_ / name; }
  void write(const std::string& name, const std::string& text) const { test::write_file(at(name), text); }
  Launch read() const { return read_launch(folder_.path()); }
  template <class Reads>
  std::string refusal(Reads&& reads) const {
    try {
      reads();
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "no refusal";
  }
  std::string refusal() const {
    return refusal([this] { read(); });
  }

  test::TemporaryFolder folder_;
  Launch launch_{.argv = {"/bin/sh", "-c", "\xc3\xa9\n"},
                 .env = {{"A", "b=c"}},
                 .working_folder = "/work",
                 .log_folder = "/logs",
                 .job_name = "job",
                 .fence_folder = "/fence",
                 .log_link = "%x-%j.out",
                 .is_command = true,
                 .forward_signals = true,
                 .time_limit_ms = 60'000,
                 .stop_grace_ms = 30'000,
                 .report = {"ckpt/step-*", {{"loss", "loss ([\\d.]+)"}}, "runs"}};
};

TEST_F(LaunchFile, ComesBackAsItWas) {
  write(kLaunchFile, to_text(launch_));
  EXPECT_EQ(read(), launch_);
}

TEST_F(LaunchFile, OfAnAttemptOnMusterdsOwnMachineComesBackAsItWas) {
  launch_.local = LocalLaunch{.program = "/bin/sh",
                              .base_env = {{"PATH", "/bin"}},
                              .ranks = 4,
                              .allowed_devices = "",
                              .devices = {"0,1", "2,3"},
                              .master_port = 65535,
                              .open_files = 1024};
  EXPECT_EQ(parse_launch(to_text(launch_), "it"), launch_);
  launch_.local->allowed_devices.reset();
  EXPECT_EQ(parse_launch(to_text(launch_), "it"), launch_);
}

TEST_F(LaunchFile, BytesThatAreNotUtf8AreRefused) {
  launch_.argv = {"\xff"};
  EXPECT_THROW(to_text(launch_), std::invalid_argument);
}

// By an earlier musterd: the processes of its attempt are still found by their mark.
TEST_F(LaunchFile, OfAnEarlierMusterStillHasTheMark) {
  const auto* text = R"({"job": 3, "argv": ["x"], "env": {"MUSTER_ATTEMPT_FOLDER": "/a"}, "ranks": 2})";
  EXPECT_EQ(attempt_mark_in(text), "/a");
  EXPECT_THAT(refusal([&] { parse_launch(text, "it"); }), HasSubstr("it: "));
  EXPECT_EQ(attempt_mark_in(to_text(launch_)), "");
  EXPECT_EQ(attempt_mark_in("{"), "");
}

TEST_F(LaunchFile, SaysWhatIsWrong) {
  EXPECT_THAT(refusal(), HasSubstr("launch.json cannot be read; is this file system shared with musterd?"));
  write(kLaunchFile, "{");
  EXPECT_THAT(refusal(), HasSubstr("launch.json is damaged"));
  write(kLaunchFile, R"({"format": 2})");
  EXPECT_THAT(refusal(), HasSubstr("is of another version of muster"));
  write(kLaunchFile, R"({"format": 1, "argv": 7})");
  EXPECT_THAT(refusal(), HasSubstr("launch.json: "));
  launch_.argv.clear();
  write(kLaunchFile, to_text(launch_));
  EXPECT_THAT(refusal(), HasSubstr("argv is empty"));
}

TEST_F(LaunchFile, OfAnArraysElementIsFoundByItsIndex) {
  write(kSetFile, to_set_text({"/jobs/1/attempt-1", "/jobs/2/attempt-1"}));
  EXPECT_EQ(attempt_of_set(at(kSetFile), 1), "/jobs/2/attempt-1");
  EXPECT_THAT(refusal([this] { attempt_of_set(at(kSetFile), 2); }), HasSubstr("set.json has no attempt 2"));
  write(kSetFile, R"({"format":1,"attempts":["/jobs/1/attempt-1", 7]})");
  EXPECT_THAT(refusal([this] { attempt_of_set(at(kSetFile), 1); }), HasSubstr("has no attempt 1"));
  EXPECT_THAT(parse_set(test::read_file(at(kSetFile))), testing::ElementsAre("/jobs/1/attempt-1", ""));
  EXPECT_THAT(parse_set("{"), testing::IsEmpty());
}

TEST_F(LaunchFile, WithWhatIsMadeBeforeTheStartComesBackAsItWas) {
  launch_.unprepared = true;
  launch_.run_file = "{\n  \"name\": \"a\",\n  \"data\": {\n    \"files\": [\n      1\n    ]\n  }\n}\n";
  launch_.cache_folder = "/cache";
  write(kLaunchFile, to_text(launch_));
  EXPECT_EQ(read(), launch_);
}

// Elements that differ in every way a launch may: in a variable, in one that others lack, in words, and in a null of
// the run file, which no patch can say.
TEST_F(LaunchFile, OfEachElementOfAnArrayComesBackFromOneFile) {
  std::vector<Launch> all(5, launch_);
  all[1].env = {{"A", "other"}, {"B", ""}};
  all[2].env.clear();
  all[2].argv = {"/bin/false"};
  all[3].run_file = "{\n  \"value\": null\n}\n";
  all[4].report.log["step"] = "step (\\d+)";
  all[4].run_file = "{\n  \"value\": 1\n}\n";
  write(kSetLaunchFile, to_set_launch_text(all));
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(launch_of_set(at(kSetLaunchFile), i), all[i]) << i;
  EXPECT_THAT(refusal([this] { launch_of_set(at(kSetLaunchFile), 5); }), HasSubstr("element 5: there is no such"));
  write(kSetLaunchFile, R"({"format": 1, "common": {}, "elements": [{}]})");
  EXPECT_THAT(refusal([this] { launch_of_set(at(kSetLaunchFile), 0); }), HasSubstr("set_launch.json, element 0: "));
}

TEST_F(LaunchFile, OfManyElementsIsSmall) {
  std::vector<Launch> all(1000, launch_);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].env["MUSTER_JOB_ID"] = std::to_string(i);
  EXPECT_LT(to_set_launch_text(all).size(), 1000 * 40 + 1000U);
}

TEST(ElementPlace, ComesBackAsItWas) {
  const ElementPlace place{"/data/slurm/set-7.1", 12};
  EXPECT_EQ(parse_element(to_text(place)), place);
  for (const auto* text : {"", "{", "7", R"({"format": 1})", R"({"format": 1, "set_folder": 3, "index": 1})",
                           R"({"format": 1, "set_folder": "/a", "index": -1})"}) {
    EXPECT_EQ(parse_element(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace agent::protocol
