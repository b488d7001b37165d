// Goal: a partition's policy fills what a job leaves out and refuses what is too much, with the limit's name, its value
// and a remedy.
// Method: PartitionPolicies alone; it is pure.
#include "controller/partitions/partition_policies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pwd.h>

#include <fstream>

#include "controller/partitions/partitions.h"
#include "controller/partitions/policy_store.h"
#include "spec/jobfile/job_keys.h"
#include "spec/jobfile/partition_keys.h"
#include "tests/manual_clock.h"

namespace partitions {
namespace {

using muster::v1::JobSpec;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int64_t kHour = 3'600'000;

PartitionPolicy policy(const std::string& name, const std::vector<std::pair<std::string, std::string>>& values = {}) {
  PartitionPolicy made;
  made.set_name(name);
  for (const auto& [key, value] : values) {
    const auto* field = jobfile::find_partition_key(key);
    EXPECT_NE(field, nullptr) << key;
    auto all = jobfile::texts(made, *field);
    if (!jobfile::is_list(*field)) all.clear();
    all.push_back(value);
    EXPECT_EQ(jobfile::put(made, *field, all), "") << key;
  }
  return made;
}

JobSpec job(const std::string& partition = "", std::uint32_t nodes = 0, std::uint32_t ranks_per_node = 0) {
  JobSpec spec;
  jobfile::set_slurm_text(spec, "partition", partition);
  spec.mutable_resources()->set_nodes(nodes);
  spec.mutable_resources()->set_ranks_per_node(ranks_per_node);
  return spec;
}

executors::ClusterFacts cluster(const std::vector<std::string>& names = {"high", "low", "main"}) {
  executors::ClusterFacts facts;
  for (const auto& name : names) {
    auto& partition = facts.partitions.emplace_back();
    partition.name = name;
    partition.state = "UP";
    partition.nodes = 4;
    partition.preempt_mode = name == "low" ? "REQUEUE" : "OFF";
    partition.is_default = name == "main";
  }
  return facts;
}

const Applicant kAnn{"ann", {"ml", "staff"}};

std::string refusal(const PartitionPolicies& book, JobSpec spec, const Applicant& who = kAnn,
                    const executors::ClusterFacts& facts = cluster()) {
  const auto found = book.admit(who, facts, spec);
  return found ? found->text : "";
}

TEST(PartitionPolicies, WithoutPoliciesEveryPartitionOfSlurmMayBeUsed) {
  const PartitionPolicies book;
  EXPECT_EQ(refusal(book, job("low", 100, 8)), "");
  EXPECT_EQ(refusal(book, job()), "");
  EXPECT_EQ(refusal(book, job("low,high")), "") << "Slurm takes several";
  EXPECT_EQ(refusal(book, job("hihg")),
            "slurm.partition \"hihg\": there is no such partition, did you mean \"high\"; you may use high, low, main");
  EXPECT_EQ(refusal(book, job("hihg"), kAnn, {}), "") << "nobody knows what Slurm has: it will say so itself";
}

TEST(PartitionPolicies, WithPoliciesOnlyThoseMayBeUsed) {
  const PartitionPolicies book({policy("main"), policy("big", {{"users", "bob"}})});
  EXPECT_EQ(refusal(book, job("main")), "");
  EXPECT_EQ(refusal(book, job("low")),
            "slurm.partition \"low\": Slurm has it, but admins have not opened it for muster; you may use main");
  EXPECT_EQ(refusal(book, job("mian")),
            "slurm.partition \"mian\": there is no such partition, did you mean \"main\"; you may use main");
  EXPECT_EQ(refusal(book, job("main,low")),
            "slurm.partition \"main,low\": want one partition, since each has limits of its own; you may use main");
}

TEST(PartitionPolicies, UsersAndMembersOfGroupsMayUseIt) {
  const PartitionPolicies book({policy("users", {{"users", "bob"}, {"users", "ann"}}),
                                policy("groups", {{"groups", "ml"}}),
                                policy("others", {{"users", "bob"}, {"groups", "hpc"}}), policy("all")});
  EXPECT_EQ(refusal(book, job("users")), "");
  EXPECT_EQ(refusal(book, job("groups")), "");
  EXPECT_EQ(refusal(book, job("all"), {"eve", {}}), "");
  EXPECT_EQ(refusal(book, job("others")),
            "slurm.partition \"others\": its users and groups do not include ann; you may use all, groups, users");
  EXPECT_THAT(refusal(book, job("groups"), {"eve", {}}), HasSubstr("its groups do not include eve"));
  EXPECT_THAT(book.usable({"bob", {}}, {}), ElementsAre("all", "others", "users"));
}

TEST(PartitionPolicies, EveryLimitIsNamedWithItsValueAndARemedy) {
  const PartitionPolicies book({policy("big", {{"max_nodes", "4"}, {"max_ranks", "8"}, {"max_time", "12h"}})});
  EXPECT_EQ(refusal(book, job("big", 8)),
            "slurm.partition \"big\": max_nodes is 4, the job wants 8; use at most 4 nodes, or ask an admin (muster "
            "partitions)");
  EXPECT_EQ(refusal(book, job("big", 4, 3)),
            "slurm.partition \"big\": max_ranks is 8, the job wants 12; use at most 8 ranks in all, or ask an admin "
            "(muster partitions)");
  auto late = job("big", 4, 2);
  late.mutable_resources()->set_time_limit_ms(24 * kHour);
  EXPECT_EQ(refusal(book, late),
            "slurm.partition \"big\": max_time is 12h, the job wants 1d; set resources.time_limit to at most 12h, or "
            "ask an admin (muster partitions)");
  late.mutable_resources()->set_time_limit_ms(12 * kHour);
  EXPECT_EQ(refusal(book, late), "");
  EXPECT_THAT(book.judge_time("big", 0)->text, HasSubstr("the job wants no limit"));
  EXPECT_FALSE(book.judge_time("other", 0));
}

TEST(PartitionPolicies, WaitingJobsAreCountedAUser) {
  const PartitionPolicies book({policy("main", {{"max_queued_jobs_per_user", "3"}})});
  EXPECT_FALSE(book.judge_waiting("main", "ann", 2, 1));
  EXPECT_EQ(book.judge_waiting("main", "ann", 3, 1)->text,
            "slurm.partition \"main\": max_queued_jobs_per_user is 3, and 3 jobs of ann wait there; wait until one "
            "starts or cancel one, or ask an admin (muster partitions)");
  EXPECT_THAT(book.judge_waiting("main", "ann", 0, 4)->text, HasSubstr("4 more would be too many"));
}

TEST(PartitionPolicies, WhatAJobLeavesOutIsFilledAndWhatItSaysIsKept) {
  const PartitionPolicies book({policy("main", {{"default_account", "lab"},
                                                {"default_qos", "normal"},
                                                {"default_constraint", "a100"},
                                                {"default_gres", "gpu:1"},
                                                {"default_time", "2h"},
                                                {"max_time", "4h"},
                                                {"requeue.max_preempted", "7"},
                                                {"requeue.max_failed", "0"}})});
  auto bare = job("main");
  ASSERT_FALSE(book.admit(kAnn, cluster(), bare));
  EXPECT_EQ(jobfile::slurm_text(bare, "account"), "lab");
  EXPECT_EQ(jobfile::slurm_text(bare, "qos"), "normal");
  EXPECT_EQ(jobfile::slurm_text(bare, "constraint"), "a100");
  EXPECT_EQ(jobfile::slurm_text(bare, "gres"), "gpu:1");
  EXPECT_EQ(bare.resources().time_limit_ms(), 2 * kHour);
  EXPECT_EQ(bare.requeue().max_preempted(), 7U);
  EXPECT_TRUE(bare.requeue().has_max_failed());
  EXPECT_FALSE(bare.requeue().has_max_timed_out()) << "left to the job file's own defaults";

  auto full = job("main");
  jobfile::set_slurm_text(full, "account", "mine");
  full.mutable_resources()->set_time_limit_ms(3 * kHour);
  full.mutable_resources()->set_gpus_per_rank(1);
  full.mutable_requeue()->set_max_preempted(0);
  ASSERT_FALSE(book.admit(kAnn, cluster(), full));
  EXPECT_EQ(jobfile::slurm_text(full, "account"), "mine");
  EXPECT_EQ(jobfile::slurm_text(full, "gres"), "") << "it has said which GPUs it needs";
  EXPECT_EQ(full.resources().time_limit_ms(), 3 * kHour);
  EXPECT_EQ(full.requeue().max_preempted(), 0U);
}

TEST(PartitionPolicies, WithoutADefaultTimeTheLimitIsTheLongest) {
  const PartitionPolicies book({policy("main", {{"max_time", "4h"}})});
  auto spec = job("main");
  ASSERT_FALSE(book.admit(kAnn, cluster(), spec));
  EXPECT_EQ(spec.resources().time_limit_ms(), 4 * kHour);
}

TEST(PartitionPolicies, AJobWithoutAPartitionGoesToTheDefault) {
  auto spec = job();
  ASSERT_FALSE(PartitionPolicies({policy("low", {{"default", "true"}}), policy("main")}).admit(kAnn, cluster(), spec));
  EXPECT_EQ(jobfile::slurm_text(spec, "partition"), "low");
  spec = job();
  ASSERT_FALSE(PartitionPolicies({policy("low"), policy("main")}).admit(kAnn, cluster(), spec));
  EXPECT_EQ(jobfile::slurm_text(spec, "partition"), "main") << "Slurm's own";
  EXPECT_EQ(refusal(PartitionPolicies({policy("low")}), job(), kAnn, cluster({"low"})),
            "slurm.partition: want one, there is no default; you may use low");
}

TEST(PartitionMisfits, AreWhatSlurmWouldNotDo) {
  const auto facts = cluster();
  const auto* main = facts.find("main");
  const auto* low = facts.find("low");
  EXPECT_THAT(misfits(policy("main", {{"max_nodes", "4"}, {"preemptible", "false"}}), main), IsEmpty());
  EXPECT_THAT(misfits(policy("gone"), nullptr),
              ElementsAre("partition \"gone\": Slurm has no such partition; add it to slurm.conf, or remove it here"));
  EXPECT_THAT(misfits(policy("main", {{"preemptible", "true"}}), main),
              ElementsAre(HasSubstr("Slurm preempts nothing there (PreemptMode=OFF)")));
  EXPECT_THAT(misfits(policy("low", {{"preemptible", "false"}}), low), ElementsAre(HasSubstr("PreemptMode=REQUEUE")));
  EXPECT_THAT(misfits(policy("main", {{"max_nodes", "9"}}), main), ElementsAre(HasSubstr("Slurm has 4 nodes there")));
  auto tight = *main;
  tight.max_time = core::Millis(kHour);
  tight.max_nodes = 2;
  tight.allow_qos = {"normal"};
  tight.state = "DOWN";
  EXPECT_THAT(misfits(policy("main", {{"max_nodes", "3"}, {"max_time", "2h"}, {"default_qos", "fast"}}), &tight),
              ElementsAre(HasSubstr("it is DOWN in Slurm"), HasSubstr("Slurm's MaxNodes is 2"),
                          HasSubstr("max_time is 2h, but Slurm's MaxTime is 1h"),
                          HasSubstr("default_qos is \"fast\", but Slurm allows only normal")));
}

TEST(PolicyJson, GivesBackWhatItWasMadeOf) {
  auto all = policy("main");
  for (const auto& field : jobfile::partition_keys()) {
    const std::string value = field.kind == spec::Kind::kWhole      ? "3"
                              : field.kind == spec::Kind::kDuration ? "90m"
                              : field.kind == spec::Kind::kFlag     ? "true"
                                                                    : "x y\"z";
    EXPECT_EQ(jobfile::put(all, field, {field.kind == spec::Kind::kWords ? "ann" : value}), "") << field.name;
  }
  const auto json = policy_to_json(all);
  EXPECT_EQ(policy_from_json("main", json).SerializeAsString(), all.SerializeAsString()) << json;
  EXPECT_THAT(json, HasSubstr(R"("max_time":"1h30m")"));
  EXPECT_EQ(policy_to_json(policy("main")), "{}");
  EXPECT_EQ(policy_from_json("main", R"({"of_a_newer_muster":1,"max_nodes":2})").max_nodes(), 2U);
  EXPECT_THROW(policy_from_json("main", R"({"max_nodes":"many"})"), std::runtime_error);
}

TEST(PartitionViews, SayThatSlurmCouldNotBeAskedYet) {
  PartitionPolicy policy;
  policy.set_name("low");
  executors::ClusterFacts slurm;
  slurm.unreachable = "scontrol: Unable to contact slurm controller";
  const auto view = partition_view("low", &policy, slurm);
  EXPECT_FALSE(view.in_slurm());
  ASSERT_EQ(view.problems_size(), 1);
  EXPECT_EQ(view.problems(0),
            "partition \"low\": Slurm could not be asked about it yet: scontrol: Unable to contact slurm controller");
}

TEST(UserGroups, AreTheUsersOwnAndThoseThatNameTheUser) {
  EXPECT_THAT(groups_of("root"), ::testing::Contains("root"));
  EXPECT_TRUE(groups_of("nobody who is known here").empty());
  std::ifstream groups("/etc/group");
  for (std::string line; std::getline(groups, line);) {
    const auto name = line.substr(0, line.find(':'));
    const auto first = line.substr(line.rfind(':') + 1, line.find(',') - line.rfind(':') - 1);
    if (first.empty() || ::getpwnam(first.c_str()) == nullptr) continue;
    EXPECT_THAT(groups_of(first), ::testing::Contains(name)) << first;
  }
}

TEST(UserGroups, AreAskedForAgainAfterAMinute) {
  common::ManualClock clock;
  std::vector<std::string> asked, groups{"ml"};
  UserGroups known(clock, [&](const std::string& user) {
    asked.push_back(user);
    return groups;
  });
  EXPECT_THAT(known.of("ann"), ElementsAre("ml"));
  groups = {"ml", "ops"};
  clock.advance(UserGroups::kRemembered - core::Millis(1));
  EXPECT_THAT(known.of("ann"), ElementsAre("ml")) << "remembered";
  EXPECT_THAT(known.of("bob"), ElementsAre("ml", "ops")) << "each user's own";
  clock.advance(core::Millis(1));
  EXPECT_THAT(known.of("ann"), ElementsAre("ml", "ops"));
  EXPECT_THAT(asked, ElementsAre("ann", "bob", "ann"));
}

TEST(NodeViews, TellWhichNodesAreLeftOutAndUntilWhen) {
  const auto lost = [](std::int64_t job, const std::string& node, std::int64_t at) {
    store::StoredEvent event;
    event.job = job;
    event.event = {core::Time(core::Millis(at)), core::NodeLost{2, node, core::Millis(3000)}};
    event.text = "node " + node + " lost";
    return event;
  };
  std::vector<executors::NodeFacts> nodes(2);
  nodes[0].name = "n1";
  nodes[1].name = "n2";
  const auto views =
      node_views(nodes, {lost(7, "n2", 1000), lost(8, "n2", 61'000), lost(9, "n9", 0)}, core::Millis(600'000));
  ASSERT_EQ(views.size(), 3U);
  EXPECT_EQ(views[0].excluded_until(), "");
  EXPECT_EQ(views[1].lost_at(), "1970-01-01T00:01:01.000Z");
  EXPECT_EQ(views[1].excluded_until(), "1970-01-01T00:11:01.000Z");
  EXPECT_EQ(views[1].lost_by_job(), 8);
  EXPECT_EQ(views[2].name(), "n9") << "Slurm does not know it, but jobs avoid it";
}

}  // namespace
}  // namespace partitions
