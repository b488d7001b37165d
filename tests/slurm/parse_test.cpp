// Real output of Slurm 22.05.
#include <gmock/gmock.h>

#include "slurm/parse.h"

namespace slurm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using namespace std::chrono_literals;

std::string row(std::vector<std::string> fields) {
  std::string text;
  for (const auto& field : fields) text += field + "~";
  return text + "\n";
}

std::vector<std::string> failed_job() {
  return {"1",          "FAILED", "NonZeroExitCode", "node1", "1",      "1795253456", "1795253457",
          "1795253458", "N/A",    "365-00:00:00",    "1792",  "(null)", "4294901759", "we|ird\"na me\nb"};
}

std::vector<ListedJob> jobs_of(const std::string& text) {
  auto parsed = parse_squeue(text, "~");
  if (const auto* problem = std::get_if<std::string>(&parsed)) {
    ADD_FAILURE() << *problem;
    return {};
  }
  return std::get<std::vector<ListedJob>>(parsed);
}

TEST(Squeue, ARowIsReadFieldByField) {
  const auto jobs = jobs_of(row(failed_job()));
  ASSERT_THAT(jobs, SizeIs(1));
  const auto& job = jobs.front();
  EXPECT_EQ(job.id, (JobId{1, {}}));
  EXPECT_EQ(job.state.state, JobState::kFailed);
  EXPECT_EQ(job.reason, "NonZeroExitCode");
  EXPECT_EQ(job.node_list, "node1");
  EXPECT_EQ(job.restarts, 1U);
  EXPECT_EQ(job.submitted, Time(1795253456s));
  EXPECT_EQ(job.started, Time(1795253457s));
  EXPECT_EQ(job.ends, Time(1795253458s));
  EXPECT_FALSE(job.preempted);
  EXPECT_EQ(job.time_limit, std::chrono::seconds(365 * 24h));
  EXPECT_EQ(job.exit, (ExitStatus{7, 0}));
  EXPECT_EQ(job.dependency, "");
  EXPECT_EQ(job.priority, 4294901759U);
  EXPECT_EQ(job.comment, "we|ird\"na me\nb");
}

TEST(Squeue, AVictimSaysSinceWhen) {
  auto victim = failed_job();
  victim[1] = "COMPLETING";
  victim[8] = "1795253460";
  const auto jobs = jobs_of(row(victim));
  ASSERT_THAT(jobs, SizeIs(1));
  EXPECT_EQ(jobs.front().preempted, Time(1795253460s));
}

TEST(Squeue, ElementsOfArraysAndJobsThatWaitAreRead) {
  auto waiting = failed_job();
  waiting[0] = "2_3";
  waiting[1] = "PENDING";
  waiting[3] = "";
  waiting[4] = "0";
  waiting[6] = "N/A";
  waiting[7] = "NONE";
  waiting[9] = "UNLIMITED";
  const auto jobs = jobs_of(row(failed_job()) + row(waiting));
  ASSERT_THAT(jobs, SizeIs(2));
  EXPECT_EQ(jobs[1].id, (JobId{2, 3}));
  EXPECT_FALSE(jobs[1].started);
  EXPECT_FALSE(jobs[1].ends);
  EXPECT_FALSE(jobs[1].time_limit);
  EXPECT_FALSE(jobs[1].exit) << "it has not ended";
}

// After `scontrol requeue` and after a preemption the exit code is 0, however the ranks ended.
TEST(Squeue, AJobThatWaitsAgainBecauseOfItsExitCodeSaysWhichItWas) {
  auto again = failed_job(), asked = failed_job();
  again[1] = asked[1] = "PENDING";
  again[10] = "25344";
  asked[10] = "0";
  const auto jobs = jobs_of(row(again) + row(asked));
  ASSERT_THAT(jobs, SizeIs(2));
  EXPECT_EQ(jobs[0].exit, (ExitStatus{99, 0}));
  EXPECT_FALSE(jobs[1].exit);
}

TEST(Squeue, NoOutputIsNoJobs) {
  EXPECT_THAT(jobs_of(""), IsEmpty());
}

TEST(Squeue, PartsOfHeterogeneousJobsAndRestsOfArraysAreLeftOut) {
  auto part = failed_job();
  part[0] = "5+1";
  auto rest = failed_job();
  rest[0] = "6_[0-3]";
  EXPECT_THAT(jobs_of(row(part) + row(rest) + row(failed_job())), SizeIs(1));
}

TEST(Squeue, AnUnknownStateIsKept) {
  auto odd = failed_job();
  odd[1] = "TELEPORTED";
  EXPECT_EQ(jobs_of(row(odd)).at(0).state.text, "TELEPORTED");
}

TEST(Squeue, WhatIsNotUnderstoodIsNeverAnEmptyList) {
  auto short_row = failed_job();
  short_row.pop_back();
  auto long_row = failed_job();
  long_row.push_back("more");
  auto no_id = failed_job();
  no_id[0] = "x";
  auto no_state = failed_job();
  no_state[1] = "(null)";
  auto odd_id = failed_job();
  odd_id[0] = "1.batch";
  for (const auto& text : {row(short_row), row(long_row), row(no_id), row(no_state), row(odd_id),
                           row(failed_job()) + "1~2", std::string("slurm_load_jobs error\n"), std::string("\n")}) {
    EXPECT_TRUE(std::holds_alternative<std::string>(parse_squeue(text, "~"))) << text;
  }
}

TEST(Sacct, EachRunOfAJobIsRead) {
  const auto text =
      row({"7", "PREEMPTED", "0:15", "1795253456", "1795253457", "1795253458", "node[1-2]", ""}) +
      row({"7_2", "CANCELLED by 1000", "0:9", "1795253456", "Unknown", "1795253459", "None assigned", "muster:a:1.2"});
  const auto parsed = parse_sacct(text, "~");
  ASSERT_TRUE(std::holds_alternative<std::vector<PastRun>>(parsed)) << std::get<std::string>(parsed);
  const auto& runs = std::get<std::vector<PastRun>>(parsed);
  ASSERT_THAT(runs, SizeIs(2));
  EXPECT_EQ(runs[0].state.state, JobState::kPreempted);
  EXPECT_EQ(runs[0].exit, (ExitStatus{0, 15}));
  EXPECT_EQ(runs[1].id, (JobId{7, 2}));
  EXPECT_EQ(runs[1].state.by, "1000");
  EXPECT_FALSE(runs[1].started);
  EXPECT_EQ(runs[1].node_list, "");
  EXPECT_EQ(runs[1].comment, "muster:a:1.2");
  EXPECT_TRUE(std::holds_alternative<std::string>(parse_sacct(row({"7", "7"}), "~")));
}

TEST(Times, DurationsInEverySpelling) {
  EXPECT_EQ(parse_duration("5:07"), 307s);
  EXPECT_EQ(parse_duration("2:00:00"), 7200s);
  EXPECT_EQ(parse_duration("1-12:00:00"), 129600s);
  for (const auto* none : {"UNLIMITED", "INVALID", "NONE", "", "5", "1-"}) EXPECT_FALSE(parse_duration(none)) << none;
}

TEST(Times, SlurmsNeverIsNoTime) {
  for (const auto* none : {"N/A", "Unknown", "NONE", "0", "34007508056", "2026-11-21T09:00:00"})
    EXPECT_FALSE(parse_time(none)) << none;
}

TEST(Scontrol, ANodeIsReadWithItsReasonWhole) {
  const auto parsed = parse_nodes(
      "NodeName=node1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=2 CPUEfctv=8 CPUTot=8 CPULoad=11.86 "
      "AvailableFeatures=a100,ib "
      "ActiveFeatures=(null) Gres=gpu:fake:2 NodeAddr=127.0.0.1 NodeHostName=host1 Port=20119 Version=22.05.8 "
      "OS=Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0  RealMemory=4000 AllocMem=512 FreeMem=20447 State=DOWN*+DRAIN "
      "Partitions=main,low,high  BootTime=1795251076 SlurmdStartTime=1795253429 CfgTRES=cpu=8,mem=4000M "
      "AllocTRES=cpu=2 "
      "Reason=fan State=IDLE is broken [root@1795253486]\n");
  ASSERT_TRUE(std::holds_alternative<std::vector<Node>>(parsed));
  const auto& node = std::get<std::vector<Node>>(parsed).at(0);
  EXPECT_EQ(node.name, "node1");
  EXPECT_EQ(node.fields.at("NodeHostName"), "host1");
  EXPECT_THAT(node.states, ElementsAre("DOWN", "DRAIN"));
  EXPECT_FALSE(node.responds);
  EXPECT_FALSE(node.usable());
  EXPECT_EQ(node.reason, "fan State=IDLE is broken [root@1795253486]");
  EXPECT_EQ(node.cpus, 8U);
  EXPECT_EQ(node.cpus_used, 2U);
  EXPECT_EQ(node.memory_mib, 4000U);
  EXPECT_EQ(node.gres, "gpu:fake:2");
  EXPECT_EQ(node.tres_used, "cpu=2");
  EXPECT_EQ(node.fields.at("AvailableFeatures"), "a100,ib");
  EXPECT_THAT(node.partitions, SizeIs(3));
  EXPECT_EQ(node.fields.at("OS"), "Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0");
}

TEST(Scontrol, UsableNodesAreThoseThatTakeJobs) {
  const auto usable = [](const std::string& state) {
    const auto parsed = parse_nodes("NodeName=n State=" + state + "\n");
    return std::get<std::vector<Node>>(parsed).at(0).usable();
  };
  for (const auto* good : {"IDLE", "MIXED", "ALLOCATED", "IDLE+CLOUD", "ALLOCATED+COMPLETING", "MIXED+PLANNED"})
    EXPECT_TRUE(usable(good)) << good;
  for (const auto* bad : {"DOWN", "IDLE+DRAIN", "IDLE*", "UNKNOWN", "ALLOCATED+FAIL", "DOWN+NOT_RESPONDING"})
    EXPECT_FALSE(usable(bad)) << bad;
}

TEST(Scontrol, ANodeSaysWhetherItIsThereAndWhyNot) {
  const auto node = [](const std::string& state, const std::string& reason = "") {
    return std::get<std::vector<Node>>(parse_nodes("NodeName=n State=" + state + " Reason=" + reason + "\n")).at(0);
  };
  EXPECT_TRUE(node("IDLE+DRAIN").should_answer());
  EXPECT_FALSE(node("IDLE+DRAIN").is_down());
  for (const auto* down : {"DOWN", "IDLE*", "ALLOCATED+FAIL"}) {
    EXPECT_TRUE(node(down).is_down()) << down;
    EXPECT_FALSE(node(down).should_answer()) << down;
  }
  EXPECT_FALSE(node("IDLE+POWERED_DOWN").should_answer());
  EXPECT_TRUE(node("IDLE+DRAIN", "Prolog_error [root@1795314284]").failed_a_launch());
  EXPECT_TRUE(node("IDLE+DRAIN", "batch job complete failure [slurm@1795314284]").failed_a_launch());
  EXPECT_FALSE(node("IDLE", "Prolog error [root@1795314284]").failed_a_launch()) << "it is not drained";
  EXPECT_FALSE(node("IDLE+DRAIN", "new disks [ada@1795314284]").failed_a_launch());
  EXPECT_EQ(node("DOWN", "new disks [ada@1795314284]").why(), "new disks");
  EXPECT_EQ(node("DOWN", "new disks [ada@1795314284]").why_since(), Time(1795314284s));
  EXPECT_EQ(node("DOWN", "new disks [ada@Unknown]").why_since(), std::nullopt);
  EXPECT_EQ(node("DOWN", "new disks").why_since(), std::nullopt);
}

TEST(Scontrol, APartitionIsRead) {
  const auto parsed = parse_partitions(
      "PartitionName=low AllowGroups=ml,ops AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=N/A "
      "DefaultTime=NONE "
      "GraceTime=10 Hidden=NO MaxNodes=4 MaxTime=1-00:00:00 MinNodes=1 Nodes=node[1-3] PriorityTier=1 "
      "PreemptMode=REQUEUE "
      "State=UP TotalCPUs=24 TotalNodes=3 JobDefaults=(null) TRES=cpu=24,mem=12000M,node=3,billing=24\n");
  ASSERT_TRUE(std::holds_alternative<std::vector<Partition>>(parsed));
  const auto& p = std::get<std::vector<Partition>>(parsed).at(0);
  EXPECT_EQ(p.name, "low");
  EXPECT_EQ(p.state, "UP");
  EXPECT_FALSE(p.is_default);
  EXPECT_EQ(p.max_time, std::chrono::seconds(24h));
  EXPECT_FALSE(p.default_time);
  EXPECT_EQ(p.max_nodes, 4U);
  EXPECT_EQ(p.total_nodes, 3U);
  EXPECT_THAT(p.allow_groups, ElementsAre("ml", "ops"));
  EXPECT_THAT(p.allow_accounts, IsEmpty());
  EXPECT_EQ(p.preempt_mode, "REQUEUE");
  EXPECT_EQ(p.grace, 10s);
  EXPECT_TRUE(std::holds_alternative<std::string>(parse_partitions("what?\n")));
}

TEST(Scontrol, TheConfigurationThatMattersIsRead) {
  const auto parsed = parse_config(
      "Configuration data as of 1795253486\n"
      "AccountingStorageType   = accounting_storage/slurmdbd\n"
      "AuthInfo                = socket=/run/munge.sock,cred_expire=5\n"
      "ClusterName             = muster\n"
      "KillWait                = 2 sec\n"
      "MaxArraySize            = 1001\n"
      "MinJobAge               = 300 sec\n"
      "PreemptMode             = REQUEUE\n"
      "PreemptType             = preempt/partition_prio\n"
      "RequeueExit             = 10-12,99\n"
      "RequeueExitHold         = (null)\n"
      "SlurmctldParameters     = a,preempt_send_user_signal\n"
      "SlurmdTimeout           = 10 sec\n"
      "SLURM_VERSION           = 22.05.8\n");
  ASSERT_TRUE(std::holds_alternative<ClusterConfig>(parsed));
  const auto& c = std::get<ClusterConfig>(parsed);
  EXPECT_EQ(c.fields.at("ClusterName"), "muster");
  EXPECT_EQ(c.fields.at("SLURM_VERSION"), "22.05.8");
  EXPECT_EQ(c.now, Time(1795253486s));
  EXPECT_EQ(c.fields.at("RequeueExit"), "10-12,99");
  EXPECT_EQ(c.fields.at("KillWait"), "2 sec");
  EXPECT_EQ(c.max_array_size, 1001U);
  const auto bare = parse_config("ClusterName = muster\n");
  ASSERT_TRUE(std::holds_alternative<ClusterConfig>(bare));
  EXPECT_FALSE(std::get<ClusterConfig>(bare).now);
  EXPECT_TRUE(std::holds_alternative<std::string>(parse_config("slurm_load_ctl_conf error\n")));
}

TEST(Sbatch, TheEstimateIsRead) {
  const auto start =
      parse_start("sbatch: Job 4 to start at 1795253486 using 24 processors on nodes node[1-3] in partition main\n");
  ASSERT_TRUE(start);
  EXPECT_EQ(start->start, Time(1795253486s));
  EXPECT_EQ(start->cpus, 24U);
  EXPECT_EQ(start->node_list, "node[1-3]");
  EXPECT_EQ(start->partition, "main");
  EXPECT_FALSE(parse_start("allocation failure: no\n"));
}

}  // namespace
}  // namespace slurm
