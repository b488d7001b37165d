// Goal: what a rank could not tell a controller that was away is not lost with the rank.
// Method: the worker's writing and the controller's reading, against each other, through real files.
#include "agent/rank/grpc/grpc_unsent_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>
#include <system_error>
#include <thread>

#include "agent/rank/grpc/grpc_reporter.h"
#include "controller/ranks/reports.h"
#include "controller/rpc/rpc_server.h"
#include "tests/claimed_port.h"
#include "tests/controller/rpc/fake_controller.h"
#include "tests/temporary_folder.h"

namespace {

using agent::rank::GrpcOutbox;
using agent::rank::UnsentFile;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

agent::rank::StepReport step(std::int64_t number) {
  agent::rank::StepReport report;
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
  ranks::read_unsent(file, [&](const muster::v1::HeartbeatRequest& request) {
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

// Goal: whoever reads a kept report knows what its numbers are, without the reports before it.
TEST_F(Unsent, EachReportTellsTheSeriesOfItsSteps) {
  outbox.declare({{.name = "validation/loss", .better = spec::Better::kLower}});
  for (int i = 1; i <= 600; ++i) {
    auto report = step(i);
    report.values = {{"validation/loss", i + 0.5}, {"undeclared", 2}};
    outbox.add(report);
  }
  keep();
  outbox.add(checkpoint(600));
  keep();
  std::vector<int> steps, series;
  ranks::read_unsent(path, [&](const muster::v1::HeartbeatRequest& request) {
    steps.push_back(request.metrics_size());
    series.push_back(request.series_size());
    for (const auto& metric : request.metrics()) {
      EXPECT_EQ(metric.values_size(), 2);
      EXPECT_EQ(metric.values(0).value(), static_cast<double>(metric.step()) + 0.5);
      EXPECT_EQ(metric.values(1).series(), "undeclared");
    }
    for (const auto& known : request.series()) EXPECT_EQ(known.name() + " " + known.better(), "validation/loss lower");
    return true;
  });
  EXPECT_THAT(steps, ElementsAre(512, 88, 0));
  EXPECT_THAT(series, ElementsAre(1, 1, 0));
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

TEST_F(Unsent, WithoutDescriptorsNothingIsLostAndItIsReadLater) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int lowest = ::dup(0);
  ::close(lowest);
  const rlimit none{static_cast<rlim_t>(lowest), before.rlim_max};
  outbox.add(step(1));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  keep();
  EXPECT_EQ(file.problem(), "Too many open files");
  EXPECT_FALSE(file.holds_all());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  outbox.add(step(2));
  keep();
  EXPECT_EQ(read(path).steps, from_one_to(2));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  int error = 0;
  try {
    read(path);
  } catch (const std::system_error& e) {
    error = e.code().value();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(error, EMFILE);
}

TEST_F(Unsent, AFolderThatTakesNothingIsSaidOnce) {
  test::write_file(folder / "attempt-1", "a file where the folder should be");
  outbox.add(step(1));
  keep();
  EXPECT_EQ(file.problem(), "Not a directory");
  EXPECT_EQ(file.collect(outbox, {}), "") << "it is not tried for ever";
}

/// Keeps what it should on a disk of 1 MiB.
class UnsentOnAFullDisk : public Unsent {
 protected:
  void SetUp() override {
    mounted_ = ::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=1m") == 0;
    if (!mounted_) GTEST_SKIP() << "mounting a tmpfs needs root";
  }
  void TearDown() override {
    if (mounted_) ::umount2(folder.path().c_str(), MNT_DETACH);
  }
  void fill() const {
    std::ofstream filler(folder / "filler", std::ios::binary);
    const std::string block(1 << 12, 'x');
    while (filler.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
  }
  void make_room() const { std::filesystem::remove(folder / "filler"); }

 private:
  bool mounted_ = false;
};

TEST_F(UnsentOnAFullDisk, ReservedRoomTakesTheLastWords) {
  file.reserve();
  fill();
  for (int i = 1; i <= 1000; ++i) outbox.add(step(i));
  keep();
  EXPECT_EQ(read(path).steps, from_one_to(1000));
  EXPECT_TRUE(file.holds_all()) << file.problem();
}

TEST_F(UnsentOnAFullDisk, ReservedRoomStaysAfterAnOutageAndIsGivenBackAtTheEnd) {
  file.reserve();
  outbox.add(step(1));
  keep();
  file.drop();
  EXPECT_THAT(read(path).steps, IsEmpty());
  fill();
  for (int i = 2; i <= 1000; ++i) outbox.add(step(i));
  keep();
  auto later = from_one_to(1000);
  later.erase(later.begin());
  EXPECT_EQ(read(path).steps, later) << "the next outage";
  file.remove();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(UnsentOnAFullDisk, WhatItRefusesIsWrittenWhenThereIsRoom) {
  std::filesystem::create_directories(path.parent_path());
  fill();
  // A page or two may be had, so some of it may be there, the last cut anywhere.
  for (int i = 1; i <= 1000; ++i) outbox.add(step(i));
  keep();
  EXPECT_FALSE(file.holds_all());
  EXPECT_EQ(file.problem(), "No space left on device");
  outbox.add(step(1001));
  keep();
  make_room();
  outbox.add(step(1002));
  keep();
  EXPECT_TRUE(file.holds_all()) << file.problem();
  EXPECT_EQ(read(path).steps, from_one_to(1002));
}

TEST_F(Unsent, ARankWithoutNewsWritesNothing) {
  outbox.add(step(1));
  keep();
  const auto size = std::filesystem::file_size(path);
  keep();
  EXPECT_EQ(std::filesystem::file_size(path), size);
}

// A training that makes a step a millisecond always has one that waits.
TEST_F(Unsent, IsDroppedOnceAllOfItIsAcknowledgedThoughStepsGoOn) {
  agent::rank::FileWriter writer(path, "");
  const auto settled = [&] { return writer.wait(std::chrono::steady_clock::now() + std::chrono::seconds(60)); };
  for (int i = 1; i <= 3; ++i) outbox.add(step(i));
  ASSERT_TRUE(writer.keep(outbox, {}));
  ASSERT_TRUE(settled());
  outbox.add(step(4));
  outbox.acknowledge_until(2, 0);
  writer.drop_if_told(outbox);
  ASSERT_TRUE(settled());
  EXPECT_FALSE(writer.holds_nothing()) << "step 3 is nowhere else";
  outbox.acknowledge_until(3, 0);
  writer.drop_if_told(outbox);
  ASSERT_TRUE(settled());
  EXPECT_TRUE(writer.holds_nothing());
  EXPECT_EQ(outbox.waiting(), 1U);
}

// A reporter whose controller goes away.
class UnsentReports : public testing::Test {
 protected:
  agent::rank::RankEnvironment environment() const {
    agent::rank::RankEnvironment e;
    e.controller = agent::rank::Endpoint{"127.0.0.1", port_.number()};
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
  test::ClaimedPort port_;  // servers come back to it
  std::unique_ptr<rpc::Server> server_ = rpc::serve(controller_, port_.on("127.0.0.1"));
};

TEST_F(UnsentReports, AreOnDiskWhenTheRankLeavesBeforeTheControllerIsBack) {
  auto reporter = agent::rank::make_grpc_reporter(environment());
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

// Goal: no step below a checkpoint is missing, however the rank ends. Heartbeats come once a minute here.
TEST_F(UnsentReports, AreOnDiskBeforeACheckpointIsWritten) {
  controller_.set_interval(core::Millis(60'000));
  auto reporter = agent::rank::make_grpc_reporter(environment());
  ASSERT_TRUE(controller_.wait_until([](const auto& c) { return c.heartbeats.contains(0); }));
  for (int i = 1; i <= 3; ++i) reporter->step(step(i));
  reporter->keep();
  EXPECT_THAT(read(file_).steps, ElementsAre(1, 2, 3));
  reporter->step(step(4));
  reporter->keep();
  EXPECT_THAT(read(file_).steps, ElementsAre(1, 2, 3, 4));

  reporter->leaving(0, "done");
  reporter.reset();
  EXPECT_EQ(controller_.steps[0].size(), 4U);
  EXPECT_FALSE(std::filesystem::exists(file_)) << "the controller has all of it";
}

// Its disk is full, say.
TEST_F(UnsentReports, AreOnDiskWhileTheControllerAnswersButTakesNothing) {
  auto reporter = agent::rank::make_grpc_reporter(environment());
  controller_.set_most_accepted(0);
  reporter->step(step(1));
  EXPECT_TRUE(eventually([&] { return !read(file_).steps.empty(); }));
  reporter->leaving(0, "done");
  reporter.reset();
  const auto found = read(file_);
  EXPECT_THAT(found.steps, ElementsAre(1));
  EXPECT_EQ(found.last_words, "done");
}

TEST_F(UnsentReports, OfARankThatIsDoneAreOfferedUntilTheControllersStoreTakesThemIfNoDiskDoes) {
  test::write_file(folder_ / "attempt-1", "a file where the folder should be");
  agent::rank::GrpcReporterOptions options;
  options.leaving_limit = std::chrono::milliseconds(0);
  options.offering_limit = std::chrono::hours(1);
  auto reporter = agent::rank::make_grpc_reporter(environment(), options);
  controller_.set_most_accepted(0);
  reporter->step(step(1));
  const auto offered = [&](int more) {
    int seen = 0;
    controller_.wait_until([&](const auto& c) {
      const auto found = c.heartbeats.find(0);
      seen = found == c.heartbeats.end() ? 0 : found->second;
      return true;
    });
    return controller_.wait_until([&](const auto& c) {
      const auto found = c.heartbeats.find(0);
      return found != c.heartbeats.end() && found->second >= seen + more;
    });
  };
  ASSERT_TRUE(offered(3)) << "it knows by now that they are not taken";
  std::thread leaving([&] { reporter->leaving(0, "done"); });
  EXPECT_TRUE(offered(3)) << "it goes on";
  controller_.set_most_accepted(1000);
  leaving.join();
  EXPECT_TRUE(arrived(1));
}

// It may be killed at any moment.
TEST_F(UnsentReports, AreOnDiskWhileTheRankGoesOn) {
  auto reporter = agent::rank::make_grpc_reporter(environment());
  reporter->step(step(1));
  ASSERT_TRUE(arrived(1));
  server_->shutdown();
  reporter->step(step(2));
  EXPECT_TRUE(eventually([&] {
    const auto steps = read(file_).steps;
    return !steps.empty() && steps.back() == 2;
  }));
  server_ = rpc::serve(controller_, port_.on("127.0.0.1"));
  ASSERT_TRUE(arrived(2));
  EXPECT_TRUE(eventually([&] { return read(file_).steps.empty(); })) << "all of it has been sent";
  reporter->leaving(0, "done");
  reporter.reset();
  EXPECT_FALSE(std::filesystem::exists(file_));
}

}  // namespace
