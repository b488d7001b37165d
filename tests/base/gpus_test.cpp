#include "base/gpus.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/places.h"
#include "tests/temporary_folder.h"

namespace base {
namespace {

constexpr std::int64_t kGigabyte = 1'000'000'000;

const std::vector<GpuLook> kGpus{{"GPU-aa11", 90, 70 * kGigabyte, {100}},
                                 {"GPU-bb22", 30, 10 * kGigabyte, {200, 201}},
                                 {"GPU-cc33", std::nullopt, 1 * kGigabyte, {}}};

TEST(GpusOfARank, AreThoseThatItsVariableNames) {
  EXPECT_EQ(use_of(kGpus, "0,1", {}), (GpuUse{60, 80 * kGigabyte}));
  EXPECT_EQ(use_of(kGpus, "1", {100}), (GpuUse{30, 10 * kGigabyte}));
  EXPECT_EQ(use_of(kGpus, "GPU-bb, GPU-aa11", {}), (GpuUse{60, 80 * kGigabyte}));
  EXPECT_EQ(use_of(kGpus, "2", {}), (GpuUse{std::nullopt, 1 * kGigabyte})) << "one that does not say how busy it is";
  EXPECT_EQ(use_of(kGpus, "0,2", {}), (GpuUse{90, 71 * kGigabyte}));
}

TEST(GpusOfARank, EndAtANameThatIsUnknownAsForCuda) {
  EXPECT_EQ(use_of(kGpus, "0,-1,1", {}), (GpuUse{90, 70 * kGigabyte}));
  for (const auto* none : {"", "-1", "7", "NoDevFiles", "MIG-aa11", ","})
    EXPECT_FALSE(use_of(kGpus, none, {100})) << none;
}

TEST(GpusOfARank, AreThoseThatItsProcessesUseWithoutTheVariable) {
  EXPECT_EQ(use_of(kGpus, std::nullopt, {5, 201}), (GpuUse{30, 10 * kGigabyte}));
  EXPECT_FALSE(use_of(kGpus, std::nullopt, {5}));
  EXPECT_FALSE(use_of({}, "0", {5}));
}

TEST(Nvml, IsAbsentWithoutItsLibrary) {
  EXPECT_EQ(open_nvml("libnvidia-ml-of-no-machine.so.1"), nullptr);
  EXPECT_EQ(open_nvml("libm.so.6"), nullptr) << "a library without NVML's functions";
}

// tests/base/fake_nvml.cpp has two GPUs, of which the second does not answer.
TEST(Nvml, IsReadThroughTheFunctionsOfItsLibrary) {
  const auto nvml = open_nvml(::test::built_program("libfake_nvml.so").c_str());
  ASSERT_NE(nvml, nullptr);
  const auto gpus = nvml->look();
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(gpus[0].uuid, "GPU-fake");
  EXPECT_EQ(gpus[0].busy_percent, 42);
  EXPECT_EQ(gpus[0].memory_bytes, 3 * kGigabyte);
  EXPECT_EQ(gpus[0].pids, (std::vector<std::int64_t>{11, 12}));
  EXPECT_EQ(gpus[1].uuid, "");
  EXPECT_FALSE(gpus[1].busy_percent);
  EXPECT_FALSE(gpus[1].memory_bytes);
}

const std::vector<GpuDevice> kDevices{{0, "GPU-aa11", "GPU-aa11", "big"},
                                      {1, "MIG-11", "GPU-bb22", "big"},
                                      {1, "MIG-22", "GPU-bb22", "big"},
                                      {3, "GPU-dd44", "GPU-dd44", "small"}};

std::vector<std::string> named(const std::string& names, std::string* unknown = nullptr) {
  std::vector<std::string> ids;
  for (const auto& device : devices_named(kDevices, names, unknown)) ids.push_back(device.id);
  return ids;
}

TEST(NamedDevices, AreFoundByNumberOrUuidUpToTheFirstUnknownName) {
  using Ids = std::vector<std::string>;
  EXPECT_EQ(named("3, 0,3"), (Ids{"GPU-dd44", "GPU-aa11"}));
  EXPECT_EQ(named("GPU-dd,MIG-22"), (Ids{"GPU-dd44", "MIG-22"}));
  EXPECT_EQ(named("1"), (Ids{"MIG-11"})) << "the first part of a divided GPU";
  EXPECT_EQ(named("GPU-bb"), (Ids{"MIG-11"}));
  std::string unknown;
  EXPECT_EQ(named("0,2,3", &unknown), (Ids{"GPU-aa11"})) << "GPU 2 does not answer";
  EXPECT_EQ(unknown, "2");
  EXPECT_EQ(named(""), Ids{});
  EXPECT_EQ(named("-1,0", &unknown), Ids{});
  EXPECT_EQ(unknown, "-1");
}

TEST(Nvml, ListsWhatProgramsCanBeGiven) {
  const auto nvml = open_nvml(::test::built_program("libfake_nvml.so").c_str());
  ASSERT_NE(nvml, nullptr);
  EXPECT_EQ(nvml->devices(), (std::vector<GpuDevice>{{0, "GPU-fake", "GPU-fake", "A GPU"}})) << "the other is lost";
  ::setenv("MUSTER_FAKE_MIG", "1", 1);
  EXPECT_EQ(nvml->devices(),
            (std::vector<GpuDevice>{{0, "MIG-0", "GPU-fake", "A GPU"}, {0, "MIG-2", "GPU-fake", "A GPU"}}));
  ::unsetenv("MUSTER_FAKE_MIG");
}

// The kernel shows GPUs whose driver says nothing.
TEST(SignsOfGpus, AreThoseOfNvidiasDriverOfDevicesAndOfPci) {
  namespace fs = std::filesystem;
  const test::TemporaryFolder folder;
  const auto root = folder / "root";
  const auto write = [&](const fs::path& file, const std::string& text) { test::write_file(root / file, text + "\n"); };
  const auto alone = [&](const fs::path& file) {
    fs::remove_all(root);
    write(file, "");
    return signs_of_gpus(root);
  };
  EXPECT_EQ(signs_of_gpus(root), GpuSigns{});
  for (const auto* file : {"dev/nvidia0", "dev/nvidiactl", "proc/driver/nvidia/version"}) {
    EXPECT_EQ(alone(file), (GpuSigns{true, true})) << file;
  }
  for (const auto* file : {"dev/kfd", "dev/dxg"}) EXPECT_EQ(alone(file), (GpuSigns{false, true})) << file;
  EXPECT_EQ(alone("dev/null"), GpuSigns{});
  const std::string card = "sys/bus/pci/devices/0000:01:00.0/";
  write(card + "vendor", "0x10de");
  write(card + "class", "0x030200");
  EXPECT_EQ(signs_of_gpus(root), (GpuSigns{false, true})) << "no driver is loaded";
  write(card + "class", "0x020000");
  EXPECT_EQ(signs_of_gpus(root), GpuSigns{}) << "a network card";
  write(card + "vendor", "0x1234");
  write(card + "class", "0x030000");
  EXPECT_EQ(signs_of_gpus(root), GpuSigns{}) << "a display of somebody else";
}

}  // namespace
}  // namespace base
