// Goal: `muster data` is muster-data: its words, its output, its exit code, its signals.
// Method: the real programs, beside each other and apart.
#include <gmock/gmock.h>
#include <signal.h>

#include "tests/places.h"
#include "tests/system/process.h"
#include "tests/temporary_folder.h"

namespace test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Data : public testing::Test {
 protected:
  Finished muster(std::vector<std::string> words, std::map<std::string, std::string> env = {}) {
    words.insert(words.begin(), ::test::built_program("muster"));
    env.emplace("HOME", folder_.path());
    return run(words, env, 30s);
  }
  TemporaryFolder folder_{memory_folder()};
};

TEST_F(Data, PassesWordsAndExitCodesOn) {
  const auto to = (folder_ / "games").native();
  const auto made = muster({"data", "prepare", "--from", "chess", "--count", "5", "--plies", "4", "--to", to});
  EXPECT_EQ(made.exit, 0) << made.err;
  EXPECT_THAT(made.err, HasSubstr("muster data prepare: reads made games of chess\n"));
  const auto shown = muster({"--address", "data", "data", "show", to});
  EXPECT_EQ(shown.exit, 0) << shown.err;
  EXPECT_THAT(shown.out, StartsWith("kind         tokens\n"));
  const auto wrong = muster({"data", "show", to, "--jsn"});
  EXPECT_EQ(wrong.exit, 2);
  EXPECT_THAT(
      wrong.err,
      HasSubstr("muster data show: there is no option --jsn, did you mean --json; see muster data show --help"));
  EXPECT_THAT(muster({"data", "prepare", "--help"}).out, HasSubstr("--from KIND [SOURCE...] --to FOLDER"));
}

TEST_F(Data, TakesSignalsAsMusterDataDoes) {
  Process process({::test::built_program("muster"), "data", "prepare", "--from", "shapes", "--count", "50000000",
                   "--to", (folder_ / "shapes").native()},
                  {}, folder_ / "out", folder_ / "err");
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder_ / "shapes/train-00000.mdat.part"); }, 30s));
  process.signal(SIGINT);
  EXPECT_EQ(process.wait(30s), 130);
  EXPECT_THAT(read_file(folder_ / "err"), HasSubstr("stopped before a part was whole; the same command begins again"));
}

TEST_F(Data, IsExplainedByHelp) {
  const auto help = muster({"help", "data"});
  EXPECT_EQ(help.exit, 0) << help.err;
  EXPECT_THAT(help.out, AllOf(HasSubstr("muster data prepare --help"), HasSubstr("decode")));
  EXPECT_THAT(muster({"--help"}).out, HasSubstr("Make training data of texts"));
}

TEST_F(Data, SaysThatMusterDataIsMissing) {
  std::filesystem::copy_file(::test::built_program("muster"), folder_ / "muster");
  const auto done = run({folder_ / "muster", "data", "show", "x"}, {{"PATH", folder_.path()}}, 30s);
  EXPECT_EQ(done.exit, 2);
  EXPECT_EQ(done.err,
            "muster data: there is no muster-data beside muster or in PATH, and it makes the data; build it with ./dev "
            "build\n");
}

}  // namespace
}  // namespace test
