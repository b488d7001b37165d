#include "base/idle_memory.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>
namespace base {
namespace {

/// KiB of this process that are resident, by the name of a line of /proc/self/status.
int resident(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int kib = 0;
    if (word == name + ":" && status >> kib) return kib;
  }
  return -1;
}

TEST(IdleMemory, OfFilesGoesBack) {
  const auto before = resident("RssFile");
  give_back_idle_memory();
  const auto after = resident("RssFile");
  EXPECT_GT(after, 0);
  EXPECT_LT(after, before / 2) << "KiB; before: " << before;
  EXPECT_THROW(throw std::string("read from the file again"), std::string);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they have allocators of their own
TEST(IdleMemory, ThatWasFreedGoesBack) {
  constexpr std::size_t kBlock = 16 << 10, kBlocks = 2000;  // 31 MiB of the heap
  std::vector<std::unique_ptr<char[]>> blocks;
  for (std::size_t i = 0; i < kBlocks; ++i) blocks.push_back(std::make_unique<char[]>(kBlock));
  const auto last = std::make_unique<char[]>(kBlock);  // above the others, so that the heap keeps its end
  blocks.clear();
  const auto before = resident("RssAnon");
  give_back_idle_memory();
  EXPECT_GT(before - resident("RssAnon"), 20 << 10) << "KiB";
}
#endif

}  // namespace
}  // namespace base
