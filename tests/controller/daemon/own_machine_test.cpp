// Goal: what musterd's own machine has to give is what its admin says, else what musterd may see, else what is there.
// Method: the driver's library is tests/os/fake_nvml.cpp, or none.
#include "daemon/own_machine.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "daemon/usage_error.h"

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
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

class OwnMachineTest : public testing::Test {
 protected:
  void SetUp() override { ::unsetenv("CUDA_VISIBLE_DEVICES"); }
  void TearDown() override { ::unsetenv("CUDA_VISIBLE_DEVICES"); }
};

TEST_F(OwnMachineTest, HasWhatTheDriverLists) {
  const auto machine = find_own_machine({.library = MUSTER_FAKE_NVML});
  EXPECT_EQ(machine.gpus, (std::vector<executors::OwnGpu>{{0, "GPU-fake", "A GPU"}}));
  EXPECT_GE(machine.cores, 1U);
  EXPECT_THAT(own_machine_text(machine), HasSubstr("local jobs share 1 GPU and "));
}

TEST_F(OwnMachineTest, HasWhatMusterdMaySee) {
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  const auto none = find_own_machine({.library = MUSTER_FAKE_NVML});
  EXPECT_THAT(ids(none), ElementsAre());
  EXPECT_EQ(none.gpus_from, "CUDA_VISIBLE_DEVICES= of musterd");
  ::setenv("CUDA_VISIBLE_DEVICES", "GPU-f,7", 1);
  EXPECT_THAT(ids(find_own_machine({.library = MUSTER_FAKE_NVML})), ElementsAre("GPU-fake"));
  EXPECT_THAT(ids(find_own_machine({.library = kNoDriver})), ElementsAre()) << "nobody knows whether they are there";
}

TEST_F(OwnMachineTest, HasWhatItsAdminSays) {
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  EXPECT_THAT(ids(find_own_machine({.gpus = "0", .library = MUSTER_FAKE_NVML})), ElementsAre("GPU-fake"));
  EXPECT_THAT(ids(find_own_machine({.gpus = "none", .library = MUSTER_FAKE_NVML})), ElementsAre());
  const auto named = find_own_machine({.gpus = "GPU-a, 7,GPU-a", .library = kNoDriver});
  EXPECT_EQ(named.gpus, (std::vector<executors::OwnGpu>{{0, "GPU-a"}, {1, "7"}})) << "no driver lists them";
  EXPECT_THAT(refusal({.gpus = "0,5", .library = MUSTER_FAKE_NVML}),
              testing::AllOf(HasSubstr("the driver knows no GPU \"5\""), HasSubstr("it has 0 (GPU-fake)")));
  EXPECT_THAT(refusal({.gpus = "a,,b", .library = kNoDriver}), HasSubstr("a name is empty"));
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
