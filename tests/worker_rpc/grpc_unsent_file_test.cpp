// Goal: what a rank could not tell a controller that was away is not lost with the rank.
// Method: the worker's writing and the controller's reading, against each other, through real files.
#include "rank/grpc_unsent_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "controller/rpc/fake_controller.h"
#include "rank/grpc_reporter.h"
#include "rpc/server.h"
#include "runtime/unsent_reports.h"
#include "temporary_folder.h"

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using worker::GrpcOutbox;
using worker::UnsentFile;

worker::StepReport step(std::int64_t number) {
  worker::StepReport report;
  report.step = number;
  return report;
}

muster::v1::CheckpointSaved checkpoint(std::int64_t step) {
  muster::v1::CheckpointSaved saved;
  saved.set_step(step);
  return saved;
}

struct Read {
  std::vector<std::int64_t> steps, checkpoints;
  std::string last_words;
  int exit_code = -1;
  std::size_t largest = 0;
};

Read read(const std::filesystem::path& file) {
  Read out;
  runtime::read_unsent(file, [&](const muster::v1::HeartbeatRequest& request) {
    for (const auto& metric : request.metrics()) out.steps.push_back(metric.step());
    for (const auto& saved : request.checkpoints()) out.checkpoints.push_back(saved.step());
    out.largest = std::max(out.largest, static_cast<std::size_t>(request.metrics_size()));
    if (!request.leaving()) return true;
    out.last_words = request.leaving_reason();
    out.exit_code = request.exit_code();
    return true;
  });
  return out;
}

std::vector<std::int64_t> from_one_to(std::int64_t last) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 1; i <= last; ++i) out.push_back(i);
  return out;
}

class Unsent : public testing::Test {
 protected:
  void keep() { file.append(file.collect(outbox, {})); }

  test::TemporaryFolder folder;
  const std::filesystem::path path = folder / "attempt-1/unsent/rank-0";
  GrpcOutbox outbox;
  UnsentFile file{path};
};

TEST_F(Unsent, HoldsEachOnceOldestFirst) {
  outbox.add(step(1));
  outbox.add(step(2));
  outbox.add(checkpoint(2));
  keep();
  outbox.add(step(3));
  keep();
  keep();
  const auto found = read(path);
  EXPECT_THAT(found.steps, ElementsAre(1, 2, 3));
  EXPECT_THAT(found.checkpoints, ElementsAre(2));
  EXPECT_EQ(file.problem(), "");
}

TEST_F(Unsent, GoesOnWhereTheControllerStoppedListening) {
  for (int i = 1; i <= 5; ++i) outbox.add(step(i));
  muster::v1::HeartbeatRequest sent;
  outbox.acknowledge(outbox.fill(sent), 4, 0);
  keep();
  EXPECT_THAT(read(path).steps, ElementsAre(5));
}

TEST_F(Unsent, HoldsALongOutageInReportsAsLargeAsAHeartbeat) {
  for (int i = 1; i <= 2000; ++i) outbox.add(step(i));
  keep();
  const auto found = read(path);
  EXPECT_EQ(found.steps, from_one_to(2000));
  EXPECT_EQ(found.largest, GrpcOutbox::kBatch);
}

TEST_F(Unsent, IsGoneWhenAllWasSent) {
  outbox.add(step(1));
  keep();
  ASSERT_TRUE(std::filesystem::exists(path));
  file.drop();
  EXPECT_FALSE(std::filesystem::exists(path));
  outbox.add(step(2));
  keep();
  EXPECT_THAT(read(path).steps, ElementsAre(2)) << "the next outage";
}

TEST_F(Unsent, IsItsOwnersAlone) {
  outbox.add(step(1));
  keep();
  struct stat seen {};
  ASSERT_EQ(::stat(path.c_str(), &seen), 0);
  EXPECT_EQ(seen.st_mode & 0777, 0600U);
}

TEST_F(Unsent, ARankKilledWhileItWroteCostsItsLastReportAlone) {
  outbox.add(step(1));
  keep();
  outbox.add(step(2));
  keep();
  const auto size = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, size - 3);
  EXPECT_THAT(read(path).steps, ElementsAre(1));
  test::write_file(path, "\xff\xff\xff\xff\xff\xff not what a worker writes");
  EXPECT_THAT(read(path).steps, IsEmpty());
  EXPECT_THAT(read(folder / "none").steps, IsEmpty());
  EXPECT_THROW(read(folder.path()), std::runtime_error) << "a folder";
}

TEST_F(Unsent, AFolderThatTakesNothingIsSaidOnce) {
  test::write_file(folder / "attempt-1", "a file where the folder should be");
  outbox.add(step(1));
  keep();
  EXPECT_EQ(file.problem(), "Not a directory");
  EXPECT_EQ(file.collect(outbox, {}), "") << "it is not tried for ever";
}

// A reporter whose controller goes away.
class UnsentReports : public testing::Test {
 protected:
  worker::RankEnvironment environment() const {
    worker::RankEnvironment e;
    e.controller = worker::Endpoint{"127.0.0.1", static_cast<std::uint16_t>(port_)};
    e.token = rpc::testing::FakeController::kRankToken;
    e.job_id = "1";
    e.attempt = 1;
    e.attempt_folder = (folder_ / "attempt-1").string();
    return e;
  }
  bool arrived(std::size_t count) {
    return controller_.wait_until([&](const auto& c) {
      const auto steps = c.steps.find(0);
      return steps != c.steps.end() && steps->second.size() >= count;
    });
  }
  template <typename Condition>
  static bool eventually(const Condition& condition) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition() && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return condition();
  }

  test::TemporaryFolder folder_;
  const std::filesystem::path file_ = folder_ / "attempt-1/unsent/rank-0";
  rpc::testing::FakeController controller_;
  std::unique_ptr<rpc::Server> server_ = rpc::serve(controller_, "127.0.0.1:0");
  int port_ = server_->port();
};

TEST_F(UnsentReports, AreOnDiskWhenTheRankLeavesBeforeTheControllerIsBack) {
  auto reporter = worker::make_grpc_reporter(environment());
  reporter->step(step(1));
  ASSERT_TRUE(arrived(1));
  server_->shutdown();
  for (int i = 2; i <= 600; ++i) reporter->step(step(i));
  reporter->checkpoint_saved(600, 1000, 2.5);
  reporter->leaving(0, "all 600 steps done");
  reporter.reset();
  const auto found = read(file_);
  auto all = from_one_to(600);
  if (found.steps.size() == 599) all.erase(all.begin());  // its one step was acknowledged
  EXPECT_EQ(found.steps, all);
  EXPECT_THAT(found.checkpoints, ElementsAre(600));
  EXPECT_EQ(found.last_words, "all 600 steps done");
  EXPECT_EQ(found.exit_code, 0);
}

// It may be killed at any moment.
TEST_F(UnsentReports, AreOnDiskWhileTheRankGoesOn) {
  auto reporter = worker::make_grpc_reporter(environment());
  reporter->step(step(1));
  ASSERT_TRUE(arrived(1));
  server_->shutdown();
  reporter->step(step(2));
  EXPECT_TRUE(eventually([&] {
    const auto steps = read(file_).steps;
    return !steps.empty() && steps.back() == 2;
  }));
  server_ = rpc::serve(controller_, "127.0.0.1:" + std::to_string(port_));
  ASSERT_TRUE(arrived(2));
  EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(file_); })) << "all of it has been sent";
  reporter->leaving(0, "done");
  reporter.reset();
  EXPECT_FALSE(std::filesystem::exists(file_));
}

}  // namespace
