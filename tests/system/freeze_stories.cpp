#include "tests/system/freeze_stories.h"

#include <thread>

namespace test {
namespace {

constexpr auto kDoctorAfter = 8s;

World::Options on_disk(World::Options world, const std::filesystem::path& folder) {
  world.data = folder / "data";
  return world;
}

std::string all_events(World& world, const std::string& job) {
  return world.cli({"events", job}).out;
}

}  // namespace

FrozenSite::FrozenSite(LoopDisk& disk, std::chrono::seconds frozen_for, World::Options world)
    : disk_(disk), frozen_for_(frozen_for), world_(on_disk(std::move(world), disk.where())), thawed_(disk) {}

void FrozenSite::begin() {
  world_.start_daemon();
  training_ = world_.submit(training_job({.steps = kSteps, .every_steps = 20, .step_delay_ms = 200}));
  const auto gate = world_.folder() / "gate";
  command_ =
      world_.submit(shell_job("until [ -e " + gate.string() + " ]; do sleep 0.2; done; exit 3", "max_failed = 0\n"));
  world_.until_state(command_, "running");
  world_.until_step(training_, 10);
}

void FrozenSite::end_command() {
  write_file(world_.folder() / "gate", "");
}

void FrozenSite::expect_heard_and_told() {
  const auto training = world_.show(training_);
  for (const auto& rank : training.at("ranks")) {
    EXPECT_LT(rank.at("last_heartbeat_ms").get<int>(), 5000) << rank.dump();
  }
  const auto doctor = world_.cli({"doctor"}, 30s);
  EXPECT_NE(doctor.out.find("stands still"), std::string::npos) << doctor.out << doctor.err;
  EXPECT_NE(doctor.exit, 0);
  const auto file = world_.folder() / "refused.toml";
  write_file(file, shell_job("true"));
  const auto refused = world_.cli({"submit", file}, 30s);
  EXPECT_EQ(refused.exit, 5);
  EXPECT_NE(refused.err.find("nothing was changed"), std::string::npos) << refused.err;
}

void FrozenSite::expect_unharmed() {
  const auto trained = world_.until_state(training_, "succeeded", 150s);
  const auto told = all_events(world_, training_) + world_.daemon_log();
  EXPECT_EQ(trained.at("attempts").size(), 1U) << trained.dump(1) << told;
  EXPECT_EQ(told.find("silent"), std::string::npos) << told;
  EXPECT_EQ(told.find("of 5)"), std::string::npos) << "no budget was charged: " << told;
  expect_every_step(world_.metrics(training_), kSteps);
  const auto ended = world_.until_state(command_, "failed", 60s);
  ASSERT_EQ(ended.at("attempts").size(), 1U) << ended.dump(1);
  const auto& attempt = ended.at("attempts").at(0);
  EXPECT_EQ(attempt.at("cause"), "failed") << ended.dump(1);
  EXPECT_NE(attempt.at("reason").get<std::string>().find("rank 0 exited with 3"), std::string::npos) << ended.dump(1);
  EXPECT_EQ(world_.cli({"doctor"}).out.find("stands still"), std::string::npos);
}

LoopDisks::LoopDisks(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    disks_.push_back(std::make_unique<LoopDisk>(folder_.path() / ("disk-" + std::to_string(i))));
  }
}

std::string LoopDisks::why_not() const {
  for (const auto& disk : disks_) {
    if (!disk->why_not().empty()) return disk->why_not();
  }
  return {};
}

void stand_still(LoopDisks& disks, const std::vector<std::chrono::seconds>& times, const World::Options& world) {
  std::vector<std::unique_ptr<FrozenSite>> sites;
  for (std::size_t i = 0; i < times.size(); ++i) {
    sites.push_back(std::make_unique<FrozenSite>(disks[i], times[i], world));
  }
  for (const auto& site : sites) site->begin();
  const auto frozen_at = Clock::now();
  for (const auto& site : sites) site->freeze();
  std::this_thread::sleep_until(frozen_at + 3s);
  for (const auto& site : sites) site->end_command();
  std::this_thread::sleep_until(frozen_at + kDoctorAfter);
  for (const auto& site : sites) site->expect_heard_and_told();
  for (const auto& site : sites) {
    std::this_thread::sleep_until(frozen_at + site->frozen_for());
    if (site == sites.back()) site->expect_heard_and_told();
    site->thaw();
  }
  for (const auto& site : sites) {
    SCOPED_TRACE("frozen for " + std::to_string(site->frozen_for().count()) + " s");
    site->expect_unharmed();
  }
}

}  // namespace test
