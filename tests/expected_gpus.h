#pragma once

#include <gtest/gtest.h>

#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

// Tests that need GPUs are skipped where there are too few. MUSTER_EXPECT_GPUS=N says that this machine has N GPUs:
// where fewer are seen such a test fails, because a run that skips it looks like a run that passes.
// tools/testing/gpus.py has this rule for tests in Python.
namespace test {

/// A test that needs GPUs runs, is skipped or fails.
struct GpuVerdict {
  enum class Kind { kRuns, kSkipped, kFails } kind = Kind::kRuns;
  std::string why;  // empty where the test runs
};

/// The verdict on a test that needs this many GPUs and sees this many. `expected` is the value of MUSTER_EXPECT_GPUS,
/// or null. A value that is no whole number of at least 1 is a failure, too.
inline GpuVerdict judge_gpus(int needed, int seen, const char* expected) {
  using Kind = GpuVerdict::Kind;
  const std::string gpus = std::to_string(seen) + (seen == 1 ? " GPU is" : " GPUs are") + " seen";
  const std::string_view text = expected == nullptr ? "" : expected;
  if (!text.empty()) {
    int wanted = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), wanted);
    if (error != std::errc() || end != text.data() + text.size() || wanted < 1)
      return {Kind::kFails, "MUSTER_EXPECT_GPUS=" + std::string(text) + ": want a whole number of at least 1"};
    if (seen < wanted)
      return {Kind::kFails, gpus + ", and MUSTER_EXPECT_GPUS=" + std::to_string(wanted) +
                                " promises more; a program built without CUDA sees none"};
  }
  if (seen < needed) return {Kind::kSkipped, gpus + ", and this test needs " + std::to_string(needed)};
  return {};
}

}  // namespace test

/// For SetUp(): goes on where the test has the GPUs that it needs, and else returns with a skip or a failure.
#define MUSTER_NEED_GPUS(needed, seen)                                                         \
  if (const auto judged = ::test::judge_gpus(needed, seen, std::getenv("MUSTER_EXPECT_GPUS")); \
      judged.kind == ::test::GpuVerdict::Kind::kFails)                                         \
    FAIL() << judged.why;                                                                      \
  else if (judged.kind == ::test::GpuVerdict::Kind::kSkipped)                                  \
  GTEST_SKIP() << judged.why
