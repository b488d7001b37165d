// Goal: muster admin reports problems of a command line before it calls the controller, and reports the result of a
// call. Method: the real program without a controller, or with one that answers as the test says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/fake_controller.h"
#include "tests/places.h"

namespace test {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Finished muster(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), ::test::built_program("muster"));
  return run(arguments, {{"MUSTER_ADDRESS", "127.0.0.1:1"}, {"MUSTER_TOKEN", "x"}}, 20s);
}

struct Slip {
  std::vector<std::string> arguments;
  std::string says;
};

TEST(Admin, SaysWhatIsWrongAndWhatToTry) {
  for (const auto& [arguments, says] : {
           Slip{{"admin"},
                "muster admin: want one of partition, drain, resume, backup, restore, audit; see muster admin --help"},
           Slip{{"admin", "partition"}, "want one of add, set, remove, list"},
           Slip{{"admin", "partition", "sett", "main"}, "there is no command \"sett\", did you mean set"},
           Slip{{"admin", "partition", "add"}, "want PARTITION; see muster admin partition add --help"},
           Slip{{"admin", "partition", "add", "main", "--max-node", "2"}, "did you mean --max-nodes"},
       }) {
    const auto done = muster(arguments);
    EXPECT_EQ(done.exit, 2);
    EXPECT_THAT(done.err, HasSubstr(says));
  }
}

TEST(Admin, RefusesValuesThatMakeNoSenseBeforeItAsks) {
  FakeController fake;
  for (const auto& [arguments, says] : {
           Slip{{"--max-nodes", "0"}, "--max-nodes \"0\": want a whole number from 1 to 1000000, or none"},
           Slip{{"--max-time", "90"}, "--max-time \"90\": want a duration such as 12h"},
           Slip{{"--preemptible", "yes"}, "want true or false, or none"},
           Slip{{"--users", "ann,,bob"}, "want names such as"},
           Slip{{"--max-nodes", "1", "--max-nodes", "2"}, "want one value"},
           Slip{{}, "want something to change, such as --max-nodes 4"},
       }) {
    std::vector<std::string> line{"admin", "partition", "set", "main"};
    line.insert(line.end(), arguments.begin(), arguments.end());
    const auto done = fake.muster(line);
    EXPECT_EQ(done.exit, 2) << says;
    EXPECT_THAT(done.err, HasSubstr(says));
  }
}

TEST(Admin, RemoveTellsWhichJobsGoOnAndThatNoPolicyIsLeft) {
  FakeController fake;
  const auto first = fake.muster({"admin", "partition", "remove", "big"});
  EXPECT_EQ(first.exit, 0);
  EXPECT_EQ(first.out, "partition big removed\n");
  EXPECT_EQ(first.err, "");
  fake.with([](FakeState& s) { s.removed.set_jobs(1); });
  EXPECT_EQ(fake.muster({"admin", "partition", "remove", "big"}).out, "partition big removed; 1 job goes on there\n");
  fake.with([](FakeState& s) {
    s.removed.set_jobs(2);
    s.removed.set_was_last(true);
  });
  const auto last = fake.muster({"admin", "partition", "remove", "big"});
  EXPECT_EQ(last.out, "partition big removed; 2 jobs go on there\n");
  EXPECT_EQ(last.err, "muster: no policy is left: everybody may use every partition of Slurm\n");
  const auto json = fake.muster({"admin", "partition", "remove", "big", "--json"});
  EXPECT_EQ(Json::parse(json.out), (Json{{"api_version", "v1"}, {"jobs", 2}, {"was_last", true}}));
  EXPECT_EQ(json.err, "") << "it is in the object";
  fake.with([](FakeState& s) { EXPECT_EQ(s.asked, std::vector<std::string>(4, "remove big by someone")); });
}

muster::v1::AuditEntry audit_entry(std::int64_t id, const std::string& user, const std::string& partition) {
  muster::v1::AuditEntry entry;
  entry.set_id(id);
  entry.set_at("2026-11-20T19:48:55.123Z");
  entry.set_user(user);
  entry.set_action("add");
  entry.set_partition(partition);
  entry.set_after("{\"max_nodes\":4}");
  return entry;
}

TEST(Admin, AuditIsOfOnePartitionIfThatIsAskedFor) {
  FakeController fake;
  fake.with([](FakeState& s) {
    s.audit = {audit_entry(3, "bob", "low"), audit_entry(2, "ann", "main"), audit_entry(1, "ann", "low")};
  });
  const std::string line = "2026-11-20 19:48:55 UTC  ann  add main: nothing -> {\"max_nodes\":4}\n";
  EXPECT_EQ(fake.muster({"admin", "audit", "--partition", "main"}).out, line);
  EXPECT_THAT(fake.muster({"admin", "audit", "--limit", "2"}).out, AllOf(HasSubstr("bob  add low"), HasSubstr(line)));
  const auto rows = Json::parse(fake.muster({"admin", "audit", "--partition", "low", "--json"}).out);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].at("user"), "bob");
  EXPECT_EQ(fake.muster({"admin", "audit", "--partition", "big"}).err,
            "muster: nobody has changed partition big yet\n");
}

TEST(Admin, NobodyForgesALineOfTheAudit) {
  FakeController fake;
  fake.with(
      [](FakeState& s) { s.audit = {audit_entry(1, "eve\n2026-11-20 19:48:56 UTC  root\x1b[2K\u202Eok", "main")}; });
  const auto out = fake.muster({"admin", "audit"}).out;
  EXPECT_EQ(std::ranges::count(out, '\n'), 1) << out;
  EXPECT_THAT(out, AllOf(HasSubstr("  eve 2026"), Not(HasSubstr("\x1b")), Not(HasSubstr("\u202E"))));
}

TEST(Partitions, AndNodesSayWhereSlurmHasNotAnsweredYet) {
  FakeController fake;
  fake.with([](FakeState& s) { s.slurm_problem = "unreachable: no answer yet"; });
  for (const auto& command : {std::vector<std::string>{"partitions"}, {"nodes"}, {"admin", "partition", "list"}}) {
    const auto done = fake.muster(command);
    EXPECT_EQ(done.exit, 0);
    EXPECT_EQ(done.out, "");
    EXPECT_EQ(done.err, "muster: Slurm is unreachable: no answer yet; its facts may be out of date or missing\n");
  }
  EXPECT_EQ(fake.muster({"nodes", "--json"}).out, "[]\n");
}

TEST(Admin, HelpAndCompletionKnowEveryKey) {
  EXPECT_THAT(muster({"admin", "partition", "add", "--help"}).out,
              AllOf(HasSubstr("--requeue-max-preempted N"), HasSubstr("--preemptible {true,false}"),
                    HasSubstr("The holder of the token is trusted")));
  EXPECT_THAT(muster({"completion", "bash"}).out,
              AllOf(HasSubstr("--max-running-jobs-per-user"),
                    HasSubstr("partition add set remove list drain resume backup restore audit")));
}

}  // namespace
}  // namespace test
