#include "data/prepare/progress.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "tests/temporary_folder.h"

namespace data::prepare {
namespace {

using namespace std::chrono_literals;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ProgressText, CountsPartsRecordsElementsAndTime) {
  const Counts now{.parts = 40,
                   .parts_done = 12,
                   .parts_kept = 2,
                   .records = 1'300'000,
                   .elements = 89'012'345,
                   .records_done = 1'200'000,
                   .records_kept = 200'000};
  EXPECT_EQ(progress_text(now, "tokens", 25s), "12 of 40 parts, 1,300,000 records, 89,012,345 tokens, 1 min 1 s left")
      << "a part has 100,000; 1,100,000 were made in 25 s, and 2,700,000 are left";
  EXPECT_THAT(progress_text(now, "tokens", 2500s), EndsWith(", 1 h 42 min left"));
}

TEST(ProgressText, KnowsNoTimeBeforeAPartIsMadeAndNoneAtTheEnd) {
  EXPECT_EQ(progress_text({.parts = 1, .records = 3, .elements = 9}, "bytes", 5s), "0 of 1 part, 3 records, 9 bytes");
  EXPECT_THAT(progress_text({.parts = 9, .parts_done = 4, .parts_kept = 4}, "bytes", 5s), Not(HasSubstr("left")));
  EXPECT_THAT(progress_text({.parts = 9, .parts_done = 9}, "bytes", 5s), Not(HasSubstr("left")));
}

TEST(Progress, PrintsALineEachTimeWhereThereIsNoTerminal) {
  const ::test::TemporaryFolder folder;
  const int terminal = ::dup(STDERR_FILENO);
  ASSERT_NE(std::freopen((folder / "err").c_str(), "w", stderr), nullptr);
  {
    Progress progress("muster data prepare", "tokens", 2, 1ms);
    progress.add_records(5, 50);
    progress.end_part(false, 5);
    while (::test::read_file(folder / "err").find("5 records") == std::string::npos) std::this_thread::yield();
    progress.say("a line");
  }
  std::fflush(stderr);
  ::dup2(terminal, STDERR_FILENO);
  ::close(terminal);
  const auto said = ::test::read_file(folder / "err");
  EXPECT_THAT(said, HasSubstr("muster data prepare: a line\n"));
  EXPECT_THAT(said, Not(HasSubstr("\033"))) << "no terminal, no drawing";
}

TEST(Grouped, HasCommasBetweenThousands) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1'000), "1,000");
  EXPECT_EQ(grouped(12'345'678), "12,345,678");
}

}  // namespace
}  // namespace data::prepare
