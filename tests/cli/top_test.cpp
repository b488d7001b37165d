// Goal: `muster top` and the rank table of `muster show` say what each rank uses, and "-" where nobody knows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/fake_controller.h"

namespace test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// Job 1 with a busy rank and one that was not sampled yet, job 2 with a GPU, and job 3, which has ended.
void add_jobs_in_use(FakeController& fake) {
  fake.with([](FakeState& s) {
    for (std::int64_t id : {1, 2, 3}) s.jobs.push_back(sample_job(id, id == 3 ? "succeeded" : "running"));
    for (auto& job : s.jobs) {
      for (auto& rank : *job.mutable_ranks()) {
        rank.set_node("n1");
        rank.set_attempt(2);
        rank.set_memory_bytes(0);
      }
    }
    auto& busy = *s.jobs[0].mutable_ranks(1)->mutable_use();
    busy.set_cores(1.7);
    busy.set_memory_bytes(std::int64_t{3} << 30);
    busy.set_memory_peak_bytes(std::int64_t{4} << 30);
    busy.set_processes(5);
    busy.set_age_ms(2300);
    auto& with_gpu = *s.jobs[1].mutable_ranks(0)->mutable_use();
    with_gpu.set_cores(0.02);
    with_gpu.set_memory_bytes(std::int64_t{5} << 30);
    with_gpu.set_gpu_percent(93.4);
    with_gpu.set_gpu_memory_bytes(std::int64_t{70} << 30);
  });
}

/// The words of each line but the first.
std::vector<std::string> rows_of(const std::string& table) {
  std::vector<std::string> rows;
  std::istringstream lines(table);
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string row;
    for (std::string word; words >> word;) row += (row.empty() ? "" : " ") + word;
    rows.push_back(row);
  }
  return rows;
}

TEST(Top, HasALineForEachRankOfTheJobsThatRun) {
  FakeController fake;
  add_jobs_in_use(fake);
  const auto top = fake.muster({"top"});
  EXPECT_EQ(top.exit, 0) << top.err;
  EXPECT_THAT(top.out, HasSubstr("JOB  ATT  RANK  NODE  STATE    STEP  CORES"));
  EXPECT_THAT(rows_of(top.out),
              ElementsAre("1 2 0 n1 running 50 - - - - - -", "1 2 1 n1 running 50 1.70 3.0 GiB 4.0 GiB - - 2s",
                          "2 2 0 n1 running 50 0.02 5.0 GiB - 93 70 GiB -", "2 2 1 n1 running 50 - - - - - -"));
  const auto asked = fake.get<muster::v1::ListRequest>([](FakeState& s) { return s.list_requests.at(0); });
  EXPECT_TRUE(asked.with_ranks());
  EXPECT_THAT(asked.states(), ElementsAre("running", "stopping"));
}

TEST(Top, ShowsWhichGpusOfTheMachineARankHas) {
  FakeController fake;
  add_jobs_in_use(fake);
  EXPECT_THAT(fake.muster({"top"}).out, Not(HasSubstr("GPUS")));
  fake.with([](FakeState& s) {
    for (auto& job : s.jobs) {
      if (job.id() == 1) job.mutable_ranks(0)->set_gpus("2,3");
    }
  });
  EXPECT_THAT(fake.muster({"top"}).out, AllOf(HasSubstr("GPUS"), HasSubstr(" 2,3 ")));
  EXPECT_EQ(nlohmann::json::parse(fake.muster({"top", "--json"}).out)[0].at("gpus"), "2,3");
}

TEST(Nodes, ShowWhoHasWhatOfTheMachineOfMusterd) {
  FakeController fake;
  fake.with([](FakeState& s) {
    s.machine.set_name("box");
    s.machine.set_gpus_from("--local-gpus");
    s.machine.set_cores(16);
    s.machine.set_cores_taken(6);
    for (unsigned number : {0U, 1U}) {
      auto& gpu = *s.machine.add_gpus();
      gpu.set_number(number);
      gpu.set_id("GPU-" + std::to_string(number));
      gpu.set_name("NVIDIA H100");
    }
    s.machine.mutable_gpus(1)->set_job_id(4);
    s.machine.mutable_gpus(1)->set_attempt(2);
    auto& holder = *s.machine.add_holders();
    holder.set_job_id(4);
    holder.set_cores(6);
    for (const int job : {7, 8}) s.machine.add_waiting(job);
  });
  const auto out = fake.muster({"nodes"}).out;
  EXPECT_THAT(out, HasSubstr("box, where local jobs run: 2 GPUs (--local-gpus); 6 of 16 cores taken: job 4 has 6\n"));
  EXPECT_THAT(rows_of(out.substr(out.find('\n') + 1)), ElementsAre("0 - - NVIDIA H100 GPU-0", "1 4 2 NVIDIA H100 GPU-1",
                                                                   "waiting, the next one first: job 7, job 8"));
  const auto rows = nlohmann::json::parse(fake.muster({"nodes", "--json"}).out);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].at("gpus")[1].at("job_id"), 4);
}

TEST(Top, PutsTheMostFirstAndTheUnknownLast) {
  FakeController fake;
  add_jobs_in_use(fake);
  const auto first_two = [&](const char* by) {
    const auto rows = rows_of(fake.muster({"top", "--sort", by, "--once"}).out);
    return rows.at(0).substr(0, 5) + ", " + rows.at(1).substr(0, 5);
  };
  EXPECT_EQ(first_two("cpu"), "1 2 1, 2 2 0");
  EXPECT_EQ(first_two("mem"), "2 2 0, 1 2 1");
  EXPECT_EQ(first_two("gpu"), "2 2 0, 1 2 0");
  EXPECT_EQ(first_two("rank"), "1 2 0, 1 2 1");
  const auto refused = fake.muster({"top", "--sort", "disk"});
  EXPECT_EQ(refused.exit, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("--sort"), HasSubstr("cpu"), HasSubstr("disk")));
}

TEST(Top, NamesWhatIsNotKnownInJson) {
  FakeController fake;
  add_jobs_in_use(fake);
  const auto rows = nlohmann::json::parse(fake.muster({"top", "--json"}).out);
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_TRUE(rows[0].at("cores").is_null());
  EXPECT_TRUE(rows[0].at("memory_bytes").is_null());
  EXPECT_TRUE(rows[0].at("gpu_percent").is_null());
  EXPECT_EQ(rows[1].at("cores"), 1.7);
  EXPECT_EQ(rows[1].at("processes"), 5);
  EXPECT_EQ(rows[1].at("age_ms"), 2300);
  EXPECT_EQ(rows[2].at("job_id"), 2);
  EXPECT_EQ(rows[2].at("gpu_memory_bytes"), std::int64_t{70} << 30);
}

TEST(Top, ShowsTheJobsThatAreNamed) {
  FakeController fake;
  add_jobs_in_use(fake);
  fake.with([](FakeState& s) { s.jobs.back().clear_ranks(); });
  const auto top = fake.muster({"top", "2", "3", "9"});
  EXPECT_EQ(rows_of(top.out).size(), 2U);
  EXPECT_THAT(top.err, AllOf(HasSubstr("job 3 has no rank: succeeded"), HasSubstr("muster top: there is no job 9")));
  EXPECT_EQ(top.exit, 3);
}

TEST(Top, SaysThatNoJobRuns) {
  FakeController fake;
  const auto top = fake.muster({"top"});
  EXPECT_EQ(top.exit, 0);
  EXPECT_EQ(top.out, "");
  EXPECT_EQ(top.err, "muster: no job runs\n");
  EXPECT_EQ(fake.muster({"top", "--json"}).out, "[]\n");
}

TEST(ShowRanks, HaveTheirUseAndGpusWhereThereAreAny) {
  FakeController fake;
  add_jobs_in_use(fake);
  const auto without = fake.muster({"show", "1"}).out;
  EXPECT_THAT(without, AllOf(HasSubstr("CORES"), HasSubstr("1.70"), HasSubstr("3.0 GiB"), Not(HasSubstr("GPU"))));
  EXPECT_THAT(fake.muster({"show", "2"}).out, AllOf(HasSubstr("GPU%"), HasSubstr("93"), HasSubstr("70 GiB")));
  const auto json = nlohmann::json::parse(fake.muster({"show", "1", "--json"}).out);
  EXPECT_TRUE(json.at("ranks")[0].at("use").is_null());
  EXPECT_EQ(json.at("ranks")[1].at("use").at("cores"), 1.7);
}

}  // namespace
}  // namespace test
