// Goal: a rank needs memory for its shard and a slice, never for the whole model.
// Method: real processes over sockets. Each measures the address space that LibTorch takes, and limits its own to a
// quarter of the model more. The model as a whole must fail there, and eight ranks must pass.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "fsdp/files/safetensors.h"
#include "fsdp/files/tensor_files.h"
#include "fsdp/text/json.h"
#include "tests/fsdp/limited_model.h"
#include "tests/fsdp/temporary_folder.h"
#include "tests/places.h"

namespace {

using ::testing::Each;

constexpr int kRanks = 8;
constexpr int kOutOfMemory = 3;
constexpr std::int64_t kAllowance = LimitedModel::kBytes / 4;

/// Writes the model's files, a few blocks each, and the index.
void write_model(const std::filesystem::path& folder) {
  constexpr int kPerFile = 6;
  fsdp::Json index;
  for (int first = 0; first < LimitedModel::kBlocks; first += kPerFile) {
    const std::string file = "from" + std::to_string(first) + ".safetensors";
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    for (int i = first; i < std::min(first + kPerFile, LimitedModel::kBlocks); ++i) {
      const std::string name = "block" + std::to_string(i) + ".weight";
      tensors.emplace_back(name, at::empty({LimitedModel::kWidth, LimitedModel::kWidth}));
      put_limited_values(name, 0, tensors.back().second);
      index["weight_map"][name] = file;
    }
    fsdp::write_safetensors(folder / file, tensors);
  }
  std::ofstream(folder / fsdp::kModelIndex) << index.dump();
}

/// Starts `ranks` processes.
std::vector<pid_t> start(const std::string& mode, int ranks, std::int64_t allowance,
                         const std::filesystem::path& folder) {
  std::filesystem::remove(folder / "store");
  std::vector<pid_t> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::string> words = {::test::built_program("fsdp_limited_rank"),
                                      mode,
                                      std::to_string(rank),
                                      std::to_string(ranks),
                                      std::to_string(allowance),
                                      folder.native()};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const pid_t process = ::fork();
    if (process == 0) {
      // Each arena of the C library reserves 64 MiB of address space.
      ::setenv("MALLOC_ARENA_MAX", "1", 1);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    processes.push_back(process);
  }
  return processes;
}

/// Waits for processes and returns their exit codes.
std::vector<int> wait(const std::vector<pid_t>& processes) {
  std::vector<int> codes;
  for (const pid_t process : processes) {
    int status = 0;
    ::waitpid(process, &status, 0);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  return codes;
}

std::vector<int> run(const std::string& mode, int ranks, std::int64_t allowance, const std::filesystem::path& folder) {
  return wait(start(mode, ranks, allowance, folder));
}

/// Checks that the export is whole and has the right values.
void expect_exported(const std::filesystem::path& folder) {
  const fsdp::TensorFiles files(folder);
  ASSERT_EQ(files.tensors().size(), static_cast<std::size_t>(LimitedModel::kBlocks));
  EXPECT_GT(files.file_count(), 1u);
  at::Tensor got = at::empty({LimitedModel::kWidth * LimitedModel::kWidth}), want = at::empty_like(got);
  for (const auto& [name, place] : files.tensors()) {
    place.file->read(name, 0, got);
    put_limited_values(name, 0, want);
    EXPECT_TRUE(at::equal(got, want)) << name;
  }
}

TEST(MemoryLimit, EightRanksLoadAndExportAModelFourTimesAsLargeAsTheirAllowance) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer needs more address space than the limit of this test";
#endif
  const TemporaryFolder folder;
  write_model(folder.path());
  EXPECT_THAT(run("whole", 1, kAllowance, folder.path()), Each(kOutOfMemory)) << "the limit limits";
  EXPECT_THAT(run("whole", 1, 5 * kAllowance, folder.path()), Each(0)) << "and nothing else is wrong";
  EXPECT_THAT(run("sharded", kRanks, kAllowance, folder.path()), Each(0));
  expect_exported(folder / "out");
}

/// The exports in a folder that are not whole yet.
int half_exports(const std::filesystem::path& folder) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    count += entry.path().filename().native().starts_with(".tmp-");
  return count;
}

TEST(Export, ThatIsKilledLeavesNothingOrAWholeOne) {
  const TemporaryFolder folder;
  int halves = 0;
  for (int i = 0; i < 6; ++i) {
    std::filesystem::remove_all(folder.path());
    std::filesystem::create_directory(folder.path());
    const auto processes = start("exporting", 1, 3 * LimitedModel::kBytes, folder.path());
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (half_exports(folder.path()) == 0 && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(20 * i));
    ::kill(processes[0], SIGKILL);
    wait(processes);
    halves += half_exports(folder.path());
    if (std::filesystem::exists(folder / "out")) expect_exported(folder / "out");
  }
  EXPECT_GT(halves, 0) << "no export was killed in the middle, so the test says little";
  EXPECT_THAT(run("exporting", 1, 3 * LimitedModel::kBytes, folder.path()), Each(0));
  expect_exported(folder / "out");
  EXPECT_EQ(half_exports(folder.path()), 0) << "the next export removes what a killed one left";
}

}  // namespace
