#include "agent/use/sampler.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "tests/temporary_folder.h"

namespace agent::use {
namespace {

using namespace std::chrono_literals;

void put_process(const std::filesystem::path& proc, int pid, int pages) {
  const auto name = std::to_string(pid);
  test::write_file(
      proc / ("new-" + name),
      name + " (python) S 2 " + name + " 1 0 -1 4 1 2 3 4 100 10 0 0 20 0 1 0 5 999 " + std::to_string(pages) + " 1\n");
  std::filesystem::create_directories(proc / name);
  std::filesystem::rename(proc / ("new-" + name), proc / name / "stat");
}

/// GPUs that answer, or stand still until they are let go.
struct Driver {
  std::mutex mutex;
  std::condition_variable changed;
  bool stands_still = false;
  std::atomic<int> asked = 0;
};
class FakeGpus : public base::Gpus {
 public:
  explicit FakeGpus(std::shared_ptr<Driver> driver) : driver_(std::move(driver)) {}
  std::vector<base::GpuLook> look() override {
    ++driver_->asked;
    std::unique_lock lock(driver_->mutex);
    driver_->changed.wait(lock, [this] { return !driver_->stands_still; });
    return {{"GPU-a", 80, 5'000, {}}, {"GPU-b", 20, 7'000, {11}}};
  }

 private:
  std::shared_ptr<Driver> driver_;
};

class ASampler : public ::testing::Test {
 protected:
  SamplerOptions options() {
    return {.first_pause = 10ms, .longest_pause = 40ms, .proc = proc_.path(), .open_gpus = [driver = driver_] {
              return std::make_unique<FakeGpus>(driver);
            }};
  }
  /// Waits for a sample that is as wanted.
  template <typename Wanted>
  std::map<std::uint32_t, protocol::RankUse> await(Sampler& sampler, Wanted wanted) {
    for (const auto give_up = std::chrono::steady_clock::now() + 20s; std::chrono::steady_clock::now() < give_up;) {
      pollfd news{sampler.fd(), POLLIN, 0};
      ::poll(&news, 1, 1000);
      auto samples = sampler.newest();
      if (wanted(samples)) return samples;
    }
    ADD_FAILURE() << "no such sample";
    return {};
  }

  test::TemporaryFolder proc_;
  std::shared_ptr<Driver> driver_ = std::make_shared<Driver>();
};

TEST_F(ASampler, TellsEachRankWithItsGpus) {
  put_process(proc_.path(), 10, 3);
  put_process(proc_.path(), 11, 4);
  Sampler sampler({{0, 10, "0"}, {1, 11, std::nullopt}, {2, 12, "0"}}, options());
  const auto samples =
      await(sampler, [](auto& all) { return all.contains(1) && all.at(1).gpu_percent && all.at(1).cores; });
  EXPECT_EQ(samples.size(), 2U) << "rank 2 has no process";
  EXPECT_EQ(samples.at(0).memory_bytes, 3 * ::sysconf(_SC_PAGESIZE));
  EXPECT_EQ(samples.at(0).gpu_percent, 80);
  EXPECT_EQ(samples.at(1).memory_bytes, 4 * ::sysconf(_SC_PAGESIZE));
  EXPECT_EQ(samples.at(1).gpu_memory_bytes, 7'000) << "it has the GPU that its process uses";
  EXPECT_EQ(samples.at(1).cores, 0);
}

TEST_F(ASampler, ForgetsARankThatHasEnded) {
  put_process(proc_.path(), 10, 3);
  put_process(proc_.path(), 11, 4);
  Sampler sampler({{0, 10, ""}, {1, 11, ""}}, options());
  await(sampler, [](auto& all) { return all.size() == 2; });
  sampler.ended(0);
  EXPECT_FALSE(sampler.newest().contains(0));
  const auto before = sampler.newest().at(1).at_ms;
  const auto later = await(sampler, [&](auto& all) { return all.at(1).at_ms > before; });
  EXPECT_FALSE(later.contains(0)) << "its process id may be another program's";
}

// Goal: a GPU that does not answer holds up neither samples nor who owns the sampler.
TEST_F(ASampler, DoesNotWaitForAGpuThatDoesNotAnswer) {
  put_process(proc_.path(), 10, 3);
  driver_->stands_still = true;
  {
    Sampler sampler({{0, 10, "0"}}, options());
    const auto samples =
        await(sampler, [&](auto& all) { return driver_->asked > 0 && all.contains(0) && all.at(0).cores; });
    EXPECT_FALSE(samples.at(0).gpu_percent);
    EXPECT_EQ(samples.at(0).memory_bytes, 3 * ::sysconf(_SC_PAGESIZE));
  }
  const std::lock_guard lock(driver_->mutex);
  driver_->stands_still = false;
  driver_->changed.notify_all();
}

TEST_F(ASampler, TellsNothingWhereProcessesDoNotShow) {
  auto from = options();
  from.proc = proc_.path() / "none";
  Sampler sampler({{0, 10, "0"}}, from);
  pollfd news{sampler.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&news, 1, 100), 0);
  EXPECT_TRUE(sampler.newest().empty());
}

}  // namespace
}  // namespace agent::use
