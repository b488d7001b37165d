// Goal: what musterd's own machine has to give is what its admin says, else what musterd may see, else what is there.
// Method: the driver's library is tests/base/fake_nvml.cpp, or none.
#include "controller/musterd/executors.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>

#include "base/usage_error.h"
#include "tests/places.h"

namespace musterd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kNoDriver = "libnvidia-ml-of-no-machine.so.1";

std::vector<std::string> ids(const executors::OwnMachine& machine) {
  std::vector<std::string> all;
  for (const auto& gpu : machine.gpus) all.push_back(gpu.id);
  return all;
}

std::string refusal(const MachineSettings& settings) {
  try {
    find_own_machine(settings);
  } catch (const base::UsageError& error) {
    return error.what();
  }
  return "";
}

class OwnMachineTest : public testing::Test {
 protected:
  void SetUp() override { ::unsetenv("CUDA_VISIBLE_DEVICES"); }
  void TearDown() override {
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    std::filesystem::remove_all(root);
  }
  /// A machine where the kernel shows these files.
  std::filesystem::path showing(const std::vector<std::string>& files) {
    std::filesystem::remove_all(root);
    std::filesystem::create_directories(root / "dev");
    for (const auto& file : files) std::ofstream(root / file).put('\n');
    return root;
  }
  const std::filesystem::path root =
      std::filesystem::temp_directory_path() / ("muster-own-machine-" + std::to_string(::getpid()));
};

TEST_F(OwnMachineTest, HasWhatTheDriverLists) {
  const auto machine = find_own_machine({.library = ::test::built_program("libfake_nvml.so")});
  EXPECT_EQ(machine.gpus, (std::vector<executors::OwnGpu>{{0, "GPU-fake", "A GPU", {0, "GPU-fake"}}}));
  EXPECT_GE(machine.cores, 1U);
  EXPECT_THAT(own_machine_text(machine), HasSubstr("local jobs share 1 GPU and "));
}

TEST_F(OwnMachineTest, HasWhatMusterdMaySee) {
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  const auto none = find_own_machine({.library = ::test::built_program("libfake_nvml.so")});
  EXPECT_THAT(ids(none), ElementsAre());
  EXPECT_EQ(none.gpus_from, "CUDA_VISIBLE_DEVICES= of musterd");
  ::setenv("CUDA_VISIBLE_DEVICES", "GPU-f,7", 1);
  EXPECT_THAT(ids(find_own_machine({.library = ::test::built_program("libfake_nvml.so")})), ElementsAre("GPU-fake"));
  EXPECT_THAT(ids(find_own_machine({.library = kNoDriver})), ElementsAre()) << "nobody knows whether they are there";
}

TEST_F(OwnMachineTest, HasWhatItsAdminSays) {
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  EXPECT_THAT(ids(find_own_machine({.gpus = "0", .library = ::test::built_program("libfake_nvml.so")})),
              ElementsAre("GPU-fake"));
  EXPECT_THAT(ids(find_own_machine({.gpus = "none", .library = ::test::built_program("libfake_nvml.so")})),
              ElementsAre());
  const auto named = find_own_machine({.gpus = "GPU-a, 7,GPU-a", .library = kNoDriver});
  EXPECT_EQ(named.gpus, (std::vector<executors::OwnGpu>{{0, "GPU-a", "", {{}, "GPU-a"}}, {7, "7", "", {7}}}))
      << "no driver lists them";
  EXPECT_THAT(refusal({.gpus = "0,5", .library = ::test::built_program("libfake_nvml.so")}),
              testing::AllOf(HasSubstr("the driver knows no GPU \"5\""), HasSubstr("it has 0 (GPU-fake)")));
  EXPECT_THAT(refusal({.gpus = "a,,b", .library = kNoDriver}), HasSubstr("a name is empty"));
}

TEST_F(OwnMachineTest, HidesGpusThatNoDriverLists) {
  const auto silent = find_own_machine({.library = kNoDriver, .root = showing({"dev/nvidia0"})});
  EXPECT_THAT(ids(silent), ElementsAre());
  EXPECT_TRUE(silent.hides_gpus);
  EXPECT_TRUE(silent.is_unsure) << "jobs wait for them";
  EXPECT_THAT(silent.problem, testing::AllOf(HasSubstr("no driver lists them"), HasSubstr("every 30 s")));
  ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  EXPECT_TRUE(find_own_machine({.library = kNoDriver, .root = showing({"dev/nvidia0"})}).is_unsure);
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  const auto other = find_own_machine({.library = kNoDriver, .root = showing({"dev/kfd"})});
  EXPECT_TRUE(other.hides_gpus);
  EXPECT_FALSE(other.is_unsure) << "NVIDIA's driver will never list them";
  EXPECT_THAT(other.problem, HasSubstr("--local-gpus 0,1"));
  EXPECT_FALSE(find_own_machine({.library = kNoDriver, .root = showing({})}).hides_gpus) << "there is none";
}

TEST_F(OwnMachineTest, HidesAllOrNoneWhereItsAdminSaysSo) {
  const auto none = find_own_machine(
      {.gpus = "none", .library = ::test::built_program("libfake_nvml.so"), .root = showing({"dev/nvidia0"})});
  EXPECT_TRUE(none.hides_gpus);
  EXPECT_FALSE(none.is_unsure);
  const auto open = find_own_machine({.gpus = "open", .library = kNoDriver, .root = showing({"dev/nvidia0"})});
  EXPECT_FALSE(open.hides_gpus);
  EXPECT_FALSE(open.is_unsure);
  EXPECT_EQ(open.problem, "");
}

TEST_F(OwnMachineTest, IsLookedAtAgainWhileTheDriverIsSilent) {
  const MachineSettings settings{.library = kNoDriver, .root = showing({"dev/nvidia0"})};
  std::vector<std::vector<std::string>> told;
  std::atomic<int> looks = 0;
  const auto find = [&] {
    auto later = settings;
    if (++looks > 2) later.library = ::test::built_program("libfake_nvml.so");
    return find_own_machine(later);
  };
  MachineWatch watch(
      settings, find_own_machine(settings), [&](const auto& machine) { told.push_back(ids(machine)); }, find, false);
  for (int i = 0; i < 100'000 && told.empty(); ++i) watch.look();
  EXPECT_THAT(told, ElementsAre(ElementsAre("GPU-fake"))) << "what is as before is not told";
  for (int i = 0; i < 10; ++i) watch.look();
  EXPECT_EQ(looks, 3) << "known GPUs are not looked for";
}

TEST_F(OwnMachineTest, ADriverThatHangsIsAskedByOneThread) {
  std::promise<void> answers;
  auto answered = answers.get_future().share();
  std::atomic<int> asked = 0;
  const MachineSettings settings{.library = kNoDriver, .root = showing({"dev/nvidia0"})};
  const auto found = find_own_machine({.library = ::test::built_program("libfake_nvml.so")});
  auto told = std::make_shared<int>(0);
  MachineWatch watch(
      settings, find_own_machine(settings), [told](const auto&) { ++*told; },
      [&] {
        ++asked;
        answered.wait();
        return found;
      },
      false);
  for (int i = 0; i < 5; ++i) watch.look();
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(*told, 0);
  answers.set_value();
  for (int i = 0; i < 100'000'000 && *told == 0; ++i) watch.look();
  EXPECT_EQ(*told, 1);
}

TEST_F(OwnMachineTest, IsNotLookedAtAgainWhereItsAdminSaysWhatThereIs) {
  for (const std::string gpus : {"none", "open", "GPU-a"}) {
    const MachineSettings settings{.gpus = gpus, .library = kNoDriver, .root = showing({"dev/nvidia0"})};
    std::atomic<int> looks = 0;
    MachineWatch watch(
        settings, find_own_machine(settings), [](const auto&) {},
        [&] {
          ++looks;
          return executors::OwnMachine{};
        },
        false);
    watch.look();
    EXPECT_EQ(looks, 0) << gpus;
  }
}

TEST_F(OwnMachineTest, CountsTheCoresThatItIsTold) {
  EXPECT_EQ(find_own_machine({.gpus = "none", .cores = "off"}).cores, 0U);
  EXPECT_EQ(find_own_machine({.gpus = "none", .cores = "12"}).cores, 12U);
  for (const auto* wrong : {"0", "-1", "many", "99999999", ""}) {
    EXPECT_THAT(refusal({.gpus = "none", .cores = wrong}), HasSubstr("want auto, off, or a number")) << wrong;
  }
}

}  // namespace
}  // namespace musterd
