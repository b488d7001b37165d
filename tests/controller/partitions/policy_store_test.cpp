// Goal: policies change by command or by file, durably and audited, and a broken file never changes anything.
// Method: PolicyStore on both kinds of store, a file that the test writes, a clock that it moves.
#include "controller/partitions/policy_store.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>
#include <future>

#include "spec/jobfile/partition_keys.h"
#include "tests/controller/service/bench.h"
#include "tests/manual_clock.h"

namespace partitions::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

muster::v1::SetPartitionRequest request(bool create, const std::string& name,
                                        const std::map<std::string, std::string>& values = {}) {
  muster::v1::SetPartitionRequest made;
  made.set_create(create);
  made.set_user("root");
  made.mutable_policy()->set_name(name);
  for (const auto& [key, value] : values) {
    made.add_keys(key);
    const auto* field = jobfile::find_partition_key(key);
    if (field != nullptr && value != "none") jobfile::put(*made.mutable_policy(), *field, {value});
  }
  return made;
}

executors::ClusterFacts cluster() {
  executors::ClusterFacts facts;
  for (const char* name : {"low", "main"}) facts.partitions.emplace_back().name = name;
  return facts;
}

class Keeping : public ::testing::Test {
 protected:
  PolicyStore& keeper() {
    if (!keeper_) keeper_ = std::make_unique<PolicyStore>(store_, clock_, file_, false);
    return *keeper_;
  }
  void restart() { keeper_.reset(); }
  void by_file() { file_ = folder_.path() / "partitions.toml"; }
  void write(const std::string& text) { std::ofstream(file_) << text; }
  /// Two looks at the file.
  void look() {
    for (int i = 0; i < 2; ++i) {
      clock_.advance(PolicyStore::kLookEvery);
      keeper().poll();
    }
  }
  std::string refusal(const muster::v1::SetPartitionRequest& wanted, const executors::ClusterFacts& facts = cluster()) {
    const auto outcome = keeper().set(wanted, facts);
    return outcome.ok() ? "" : outcome.refusal().text;
  }
  std::vector<std::string> audit() {
    std::vector<std::string> lines;
    for (const auto& row : store_.audit(0, "", 100)) {
      lines.push_back(row.user + " " + row.action + " " + row.partition + " " + row.before + ">" + row.after);
    }
    return lines;
  }

  service::testing::TempFolder folder_;
  store::MemoryStore store_;
  common::ManualClock clock_;
  std::filesystem::path file_;
  std::unique_ptr<PolicyStore> keeper_;
};

TEST_F(Keeping, ACommandChangesOnlyWhatItNamesAndIsAudited) {
  EXPECT_EQ(refusal(request(true, "main", {{"max_nodes", "4"}, {"users", "ann"}})), "");
  EXPECT_EQ(refusal(request(false, "main", {{"max_nodes", "2"}})), "");
  EXPECT_EQ(refusal(request(false, "main", {{"users", "none"}})), "");
  const auto* policy = keeper().book()->find("main");
  ASSERT_NE(policy, nullptr);
  EXPECT_EQ(policy->max_nodes(), 2U);
  EXPECT_EQ(policy->users_size(), 0);
  EXPECT_THAT(audit(), ElementsAre(R"(root set main {"users":["ann"],"max_nodes":2}>{"max_nodes":2})",
                                   R"(root set main {"users":["ann"],"max_nodes":4}>{"users":["ann"],"max_nodes":2})",
                                   R"(root add main >{"users":["ann"],"max_nodes":4})"));
  restart();
  EXPECT_EQ(keeper().book()->find("main")->max_nodes(), 2U) << "it is kept";
}

TEST_F(Keeping, AddWantsANewOneThatSlurmKnowsAndSetOneThatIsThere) {
  EXPECT_EQ(refusal(request(true, "main")), "");
  EXPECT_EQ(refusal(request(true, "main")),
            "partition \"main\" has a policy already; muster admin partition set main changes it");
  EXPECT_EQ(refusal(request(false, "mian")),
            "partition \"mian\" has no policy, did you mean \"main\"; muster admin "
            "partition add mian gives it one");
  EXPECT_EQ(refusal(request(true, "lwo")), "Slurm knows no partition \"lwo\", did you mean \"low\"; it has low, main");
  auto down = cluster();
  down.unreachable = "timeout";
  EXPECT_EQ(refusal(request(true, "new"), down), "") << "Slurm can't be asked: it is kept, and told as a problem";
  EXPECT_THAT(refusal(request(true, "a b")), HasSubstr("want 1 to 64 letters"));
}

TEST_F(Keeping, WhatMakesNoSenseIsRefusedAndChangesNothing) {
  ASSERT_EQ(refusal(request(true, "main", {{"max_time", "1h"}, {"default", "true"}})), "");
  EXPECT_EQ(refusal(request(false, "main", {{"default_time", "2h"}})),
            "default_time \"2h\": want at most max_time, 1h");
  EXPECT_EQ(refusal(request(false, "main", {{"max_node", "2"}})), "unknown key max_node, did you mean max_nodes");
  EXPECT_THAT(refusal(request(true, "low", {{"default", "true"}})),
              HasSubstr("partition \"main\" is the default already"));
  auto wrong = request(false, "main", {{"max_nodes", "1"}});
  wrong.mutable_policy()->set_max_nodes(0);
  EXPECT_THAT(refusal(wrong), HasSubstr("max_nodes \"0\": want a whole number from 1"));
  EXPECT_EQ(audit().size(), 1U);
}

TEST_F(Keeping, WhatCannotBeStoredIsNotInForce) {
  ASSERT_EQ(refusal(request(true, "low")), "");
  const auto set = request(true, "main");
  muster::v1::RemovePartitionRequest remove;
  remove.set_name("low");
  store_.fail_writes(store::Error(store::Error::Kind::kFull, "the disk is full"));
  for (const auto& outcome : {keeper().set(set, cluster()), keeper().remove(remove)}) {
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.refusal().kind, common::Refusal::Kind::kUnchanged);
    EXPECT_EQ(outcome.refusal().text, "nothing was changed: the disk is full");
  }
  store_.fail_writes(store::Error(store::Error::Kind::kOther, "a lock was lost"));
  EXPECT_THROW(keeper().set(set, cluster()), store::Error) << "whether it is changed is not known";
  EXPECT_EQ(keeper().book()->find("main"), nullptr);
  EXPECT_NE(keeper().book()->find("low"), nullptr);
}

TEST_F(Keeping, ARemovedOneIsGone) {
  ASSERT_EQ(refusal(request(true, "main")), "");
  muster::v1::RemovePartitionRequest remove;
  remove.set_name("main");
  remove.set_user("eve");
  ASSERT_TRUE(keeper().remove(remove).ok());
  EXPECT_TRUE(keeper().book()->empty());
  EXPECT_EQ(keeper().remove(remove).refusal().kind, common::Refusal::Kind::kNotFound);
  EXPECT_THAT(audit().front(), HasSubstr("eve remove main {}>"));
}

TEST_F(Keeping, WhoAskedIsOneLineOfTheAudit) {
  auto named = request(true, "main");
  named.set_user("eve\n\x1b[2Kroot set main \xff");
  ASSERT_EQ(refusal(named), "");
  EXPECT_THAT(audit(), ElementsAre("eve [2Kroot set main ? add main >{}"));
}

TEST_F(Keeping, AFileSaysWhichThereAreAndIsReadAgain) {
  by_file();
  write("[partition.main]\nmax_nodes = 2\n[partition.low]\n");
  EXPECT_EQ(keeper().book()->find("main")->max_nodes(), 2U);
  write("[partition.main]\nmax_nodes = 3\n");
  clock_.advance(PolicyStore::kLookEvery);
  keeper().poll();
  EXPECT_EQ(keeper().book()->find("main")->max_nodes(), 2U) << "it may be half written";
  look();
  EXPECT_EQ(keeper().book()->find("main")->max_nodes(), 3U);
  EXPECT_EQ(keeper().book()->find("low"), nullptr);
  EXPECT_THAT(audit(), ElementsAre(R"(file set main {"max_nodes":2}>{"max_nodes":3})", "file remove low {}>",
                                   R"(file add main >{"max_nodes":2})", "file add low >{}"));
  EXPECT_THAT(refusal(request(true, "high")), HasSubstr("edit " + file_.string()));
  restart();
  EXPECT_EQ(keeper().book()->find("main")->max_nodes(), 3U);
  EXPECT_EQ(audit().size(), 4U) << "nothing has changed";
}

TEST_F(Keeping, ABrokenFileKeepsTheLastGoodOneAndSaysWhere) {
  by_file();
  write("[partition.main]\nmax_nodes = 2\n");
  keeper();
  write("[partition.main]\nmax_nodes = \"many\"\nusres = [\"ann\"]\n");
  look();
  EXPECT_EQ(keeper().book()->find("main")->max_nodes(), 2U);
  EXPECT_THAT(keeper().problem(), HasSubstr("partitions.toml:2:13: max_nodes \"many\": want a whole number from 1"));
  EXPECT_THAT(keeper().problem(), HasSubstr("partitions.toml:3:1: usres: unknown key, did you mean users"));
  EXPECT_THAT(keeper().problem(), HasSubstr("the last good one is in force"));
  restart();
  EXPECT_EQ(keeper().book()->find("main")->max_nodes(), 2U) << "over a restart too";
  for (const char* text : {"", "[partition"}) {
    write(text);
    look();
    EXPECT_EQ(keeper().book()->find("main")->max_nodes(), 2U) << text;
    EXPECT_NE(keeper().problem(), "");
  }
  std::filesystem::remove(file_);
  look();
  EXPECT_THAT(keeper().problem(), HasSubstr("cannot be read"));
  write("[partition.main]\nmax_nodes = 2\n");
  look();
  EXPECT_EQ(keeper().problem(), "");
}

TEST_F(Keeping, AFirstFileThatIsBrokenOpensNothing) {
  by_file();
  write("[partition.main]\nmax_nodes = 0\n");
  EXPECT_THROW(keeper(), std::runtime_error);
  EXPECT_THAT(store_.partitions(), IsEmpty());
}

TEST_F(Keeping, AFolderInTheFilesPlaceIsToldAndChangesNothing) {
  by_file();
  write("[partition.main]\n");
  keeper();
  std::filesystem::remove(file_);
  std::filesystem::create_directory(file_);
  look();
  EXPECT_THAT(keeper().problem(), HasSubstr("partitions.toml: cannot be read"));
  EXPECT_NE(keeper().book()->find("main"), nullptr);
}

// A network folder's server may have lost the file meanwhile: what was open is read, and asking by name fails.
TEST_F(Keeping, AFileWhoseNameCannotBeLookedUpAnyMoreEndsNothing) {
  by_file();
  write("[partition.main]\nmax_nodes = 2\n");
  keeper();
  std::filesystem::remove(file_);
  ASSERT_EQ(mkfifo(file_.c_str(), 0600), 0);
  // Opening it waits for the keeper, as the keeper does for us.
  const auto writer = std::async(std::launch::async, [&] {
    std::ofstream out(file_);
    std::filesystem::create_symlink(file_, folder_.path() / "circle");
    std::filesystem::rename(folder_.path() / "circle", file_);
    out << "[partition.main]\nmax_nodes = 3\n";
  });
  clock_.advance(PolicyStore::kLookEvery);
  EXPECT_NO_THROW(keeper().poll());
  writer.wait();
  look();
  EXPECT_THAT(keeper().problem(), HasSubstr("partitions.toml: cannot be read"));
  EXPECT_EQ(keeper().book()->find("main")->max_nodes(), 2U);
}

TEST_F(Keeping, AFileThatCouldNotBeStoredIsTriedAgain) {
  by_file();
  write("[partition.main]\nmax_nodes = 2\n");
  keeper();
  store_.fail_writes(store::Error(store::Error::Kind::kFull, "the disk is full"));
  write("[partition.main]\nmax_nodes = 3\n");
  look();
  EXPECT_EQ(keeper().book()->find("main")->max_nodes(), 2U);
  EXPECT_THAT(keeper().problem(), HasSubstr("the disk is full"));
  store_.fail_writes(std::nullopt);
  look();
  EXPECT_EQ(keeper().book()->find("main")->max_nodes(), 3U);
  EXPECT_EQ(keeper().problem(), "");
}

}  // namespace
}  // namespace partitions::testing
