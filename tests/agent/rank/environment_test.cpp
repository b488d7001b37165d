#include "agent/rank/environment.h"

#include <gmock/gmock.h>

#include <map>
#include <stdexcept>
#include <string>

#include "agent/rank/meeting.h"
#include "tests/worker/temporary_folder.h"

namespace agent::rank {
namespace {

using ::testing::HasSubstr;

RankEnvironment read(const std::map<std::string, std::string>& variables) {
  return read_environment([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string refusal(const std::map<std::string, std::string>& variables) {
  return worker::testing::message_of<std::invalid_argument>([&] { read(variables); });
}

TEST(Environment, NothingSetIsASingleProcess) {
  const auto e = read({});
  EXPECT_EQ(e.rank, 0);
  EXPECT_EQ(e.world_size, 1);
  EXPECT_EQ(e.attempt, 0);
  EXPECT_FALSE(e.controller);
  EXPECT_EQ(e.metrics_file, "metrics.rank0.jsonl");
}

TEST(Environment, TheUsualVariablesAreRead) {
  const auto e = read({{"RANK", "5"},
                       {"LOCAL_RANK", "1"},
                       {"NODE_RANK", "1"},
                       {"WORLD_SIZE", "8"},
                       {"LOCAL_WORLD_SIZE", "4"},
                       {"MASTER_ADDR", "n0"},
                       {"MASTER_PORT", "29500"},
                       {"MUSTER_CONTROLLER", "127.0.0.1:7077"},
                       {"MUSTER_RANK_TOKEN", "secret"},
                       {"MUSTER_JOB_ID", "job-7"},
                       {"MUSTER_ATTEMPT", "3"},
                       {"MUSTER_RUN_FILE", "/run.json"},
                       {"MUSTER_METRICS_FILE", "/m.jsonl"}});
  EXPECT_EQ(e.rank, 5);
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(e.node_rank, 1);
  EXPECT_EQ(e.world_size, 8);
  EXPECT_EQ(e.local_world_size, 4);
  EXPECT_EQ(e.master, (Endpoint{"n0", 29500}));
  EXPECT_EQ(e.controller, (Endpoint{"127.0.0.1", 7077}));
  EXPECT_EQ(e.token, "secret");
  EXPECT_EQ(e.job_id, "job-7");
  EXPECT_EQ(e.attempt, 3);
  EXPECT_EQ(e.run_file, "/run.json");
  EXPECT_EQ(e.metrics_file, "/m.jsonl");
}

TEST(Environment, MissingLocalVariablesMeanOneNode) {
  const auto e = read({{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "::1"}, {"MASTER_PORT", "1"}});
  EXPECT_EQ(e.local_rank, 2);
  EXPECT_EQ(e.local_world_size, 4);
  EXPECT_EQ(e.node_rank, 0);
}

TEST(Environment, SlurmsVariablesServeWhereRankIsMissing) {
  const auto e = read({{"SLURM_PROCID", "6"},
                       {"SLURM_LOCALID", "0"},
                       {"SLURM_NODEID", "3"},
                       {"SLURM_NTASKS", "99"},
                       {"SLURM_STEP_NUM_TASKS", "7"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                       {"MUSTER_CONTROLLER", "c:1"}});
  EXPECT_EQ(e.rank, 6);
  EXPECT_EQ(e.world_size, 7);
  EXPECT_EQ(e.node_rank, 3);
  EXPECT_EQ(e.local_world_size, 1);
  EXPECT_FALSE(e.master);
}

// Every rank of an srun step derives the same address, without communication.
TEST(Environment, WithoutAControllerSlurmsVariablesTellWhereToMeet) {
  std::map<std::string, std::string> variables = {{"SLURM_PROCID", "3"},
                                                  {"SLURM_LOCALID", "1"},
                                                  {"SLURM_NODEID", "1"},
                                                  {"SLURM_STEP_NUM_TASKS", "4"},
                                                  {"SLURM_STEP_NUM_NODES", "2"},
                                                  {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                                                  {"SLURM_JOB_ID", "1000"},
                                                  {"SLURM_STEP_ID", "2"},
                                                  {"SLURM_STEP_NODELIST", "nowhere[07-08]"},
                                                  {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.7"}};
  const GetVariable get = [&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  const auto yes = [](const std::string&) { return true; };
  const auto no = [](const std::string&) { return false; };
  EXPECT_EQ(slurm_meeting_point(get, yes), (Endpoint{"nowhere07", 10'000 + (31'000 + 2) % 20'000}));
  EXPECT_EQ(slurm_meeting_point(get, no)->host, "10.0.0.7") << "srun's own node, by its address";
  EXPECT_EQ(read_environment(get).master->host, "10.0.0.7");
  variables["SLURM_STEP_NUM_NODES"] = "1";
  EXPECT_EQ(slurm_meeting_point(get, yes)->host, "127.0.0.1");
  variables.erase("SLURM_PROCID");
  EXPECT_FALSE(slurm_meeting_point(get, yes));
}

TEST(Environment, TheFirstHostOfSlurmsLists) {
  EXPECT_EQ(first_host("node[07-09,12],gpu-a"), "node07");
  EXPECT_EQ(first_host("gpu-a,node[1-2]"), "gpu-a");
  EXPECT_EQ(first_host("r[1-2]n[3,5]-ib,x"), "r1n3-ib");
  EXPECT_EQ(first_host("solo"), "solo");
  EXPECT_EQ(first_host(""), "");
  EXPECT_EQ(first_host("broken[1-"), "");
}

TEST(Environment, RankWinsOverSlurm) {
  const auto e = read({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"}});
  EXPECT_EQ(e.world_size, 1);
}

TEST(Environment, ErrorsNameVariableValueAndRemedy) {
  EXPECT_THAT(refusal({{"RANK", "two"}, {"WORLD_SIZE", "4"}}), HasSubstr("RANK=\"two\" is not a whole number"));
  EXPECT_THAT(refusal({{"RANK", "1"}}), HasSubstr("WORLD_SIZE is not set"));
  EXPECT_THAT(refusal({{"WORLD_SIZE", "2"}}), HasSubstr("RANK is not"));
  EXPECT_THAT(refusal({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), HasSubstr("rank 2 is not below the world size 2"));
  EXPECT_THAT(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "4"}}),
              HasSubstr("local world size 4 is above the world size 2"));
  EXPECT_THAT(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "1"}, {"LOCAL_RANK", "1"}}),
              HasSubstr("fix LOCAL_RANK"));
  EXPECT_THAT(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), HasSubstr("MASTER_ADDR and MASTER_PORT"));
  EXPECT_THAT(refusal({{"MUSTER_CONTROLLER", "localhost"}}), HasSubstr("MUSTER_CONTROLLER: \"localhost\""));
  EXPECT_THAT(refusal({{"MUSTER_ATTEMPT", "-1"}}), HasSubstr("MUSTER_ATTEMPT=\"-1\""));
  EXPECT_THAT(refusal({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}}), HasSubstr("SLURM_LOCALID is not set"));
}

TEST(Endpoint, ReadsWhatItWrites) {
  for (const Endpoint& e : {Endpoint{"n1", 80}, Endpoint{"fe80::1", 65535}, Endpoint{"10.0.0.1", 1}}) {
    EXPECT_EQ(parse_endpoint(to_string(e)), e);
  }
  for (const char* bad : {"", ":1", "host", "host:", "host:0", "host:65536", "host:1x", "::1:5", "[]:5"}) {
    EXPECT_THROW(parse_endpoint(bad), std::invalid_argument) << bad;
  }
}

TEST(Endpoint, OwnAddressTowardsThisMachineIsLoopback) {
  EXPECT_EQ(own_address_towards({"127.0.0.1", 9}), "127.0.0.1");
}

}  // namespace
}  // namespace agent::rank
