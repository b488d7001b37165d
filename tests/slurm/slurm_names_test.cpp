// Goal: the names of states and reasons in slurm/ are exactly Slurm's own. None is missing and none is invented.
// Method: the test loads the library that squeue prints with and asks it for the name of every number.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <set>

#include "slurm/pending_reason.h"
#include "slurm/slurm_job.h"
#include "tests/slurm/reason_names.h"

namespace slurm {
namespace {

constexpr const char* kPlaces[] = {"/usr/lib/x86_64-linux-gnu/slurm-wlm/libslurmfull.so",
                                   "/usr/lib/aarch64-linux-gnu/slurm-wlm/libslurmfull.so",
                                   "/usr/lib64/slurm/libslurmfull.so", "/usr/lib/slurm/libslurmfull.so"};
constexpr long k2205 = 38;            // the first part of slurm_api_version()
constexpr std::uint32_t kBases = 12;  // base states; a job has one of them, and the bits above the first byte are flags
constexpr std::uint32_t kFirstFlag = 1U << 8U;
constexpr std::uint32_t kSuspended = 2;  // the last base state of a job that is not over
constexpr std::uint32_t kReasonsMost = 10'000;

class SlurmNames : public testing::Test {
 public:
  using StateName = char* (*)(std::uint32_t);
  using ReasonName = const char* (*)(std::uint32_t);

 protected:
  void SetUp() override {
    for (const char* place : kPlaces) {
      if (library_ == nullptr) library_ = ::dlopen(place, RTLD_NOW | RTLD_LOCAL);
    }
    if (library_ == nullptr) GTEST_SKIP() << "no libslurmfull.so here";
    const long version = function<long (*)()>("slurm_api_version")() >> 16;
    if (version != k2205) GTEST_SKIP() << "the tables are those of Slurm 22.05 (38); this is " << version;
  }

  template <typename Function>
  Function function(const char* name) {
    auto* found = ::dlsym(library_, name);
    if (found == nullptr) throw std::runtime_error(std::string(name) + " is not in libslurmfull.so");
    return reinterpret_cast<Function>(found);
  }

 private:
  void* library_ = nullptr;  // never closed, because the library may have registered exit handlers
};

TEST_F(SlurmNames, EveryStateIsOneOfOursAndEachOfOursIsOneOfSlurms) {
  const auto full = function<StateName>("job_state_string");
  const auto compact = function<StateName>("job_state_string_compact");
  std::set<JobState> seen;
  const auto expect_known = [&](std::uint32_t number) {
    const std::string slurms = full(number), abridged = compact(number);
    const auto state = parse_job_state(slurms).state;
    EXPECT_EQ(name(state), slurms);
    EXPECT_EQ(name(parse_job_state(abridged).state), slurms) << abridged;
    EXPECT_TRUE(seen.insert(state).second) << slurms << " is read as another one";
    return state;
  };
  for (std::uint32_t base = 0; base < kBases; ++base) {
    const auto state = expect_known(base);
    EXPECT_EQ(classify(state) == JobPhase::kEnded, base > kSuspended) << full(base);
  }
  EXPECT_STREQ(full(kBases), "?") << "there is one more";
  const std::string pending = full(0);
  for (std::uint32_t flag = kFirstFlag; flag != 0; flag <<= 1U) {
    if (full(flag) != pending) expect_known(flag);  // for other base states the library prints no flag
  }
  for (int ours = 0; ours < static_cast<int>(JobState::kUnknown); ++ours) {
    const auto state = static_cast<JobState>(ours);
    EXPECT_TRUE(seen.contains(state)) << name(state) << " is ours alone";
  }
}

TEST_F(SlurmNames, EveryReasonIsOneOfOursAndEachOfOursIsOneOfSlurms) {
  const auto reason = function<ReasonName>("job_reason_string");
  std::set<std::string> slurms;
  // A reason without a name is printed as its number.
  for (std::uint32_t number = 0; number < kReasonsMost && reason(number) != std::to_string(number); ++number) {
    slurms.insert(reason(number));
    EXPECT_TRUE(explain_reason(reason(number)).known) << reason(number);
  }
  std::set<std::string> ours;
  for (const auto& known : reason_names()) {
    EXPECT_TRUE(ours.emplace(known).second) << known << " is there twice";
    EXPECT_TRUE(slurms.contains(known)) << known << " is ours alone";
  }
  for (const auto& slurms_own : slurms) EXPECT_TRUE(ours.contains(slurms_own)) << slurms_own << " is missing";
}

}  // namespace
}  // namespace slurm
