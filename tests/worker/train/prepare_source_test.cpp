// Goal: a source that cannot be read ends a job for good only where it is wrong, and the words are muster-data's.
// Method: the real muster-data, and answers of one for what it cannot be made to say.
#include "worker/train/prepare_source.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/usage_error.h"
#include "data/format/dataset.h"
#include "tests/worker/temporary_folder.h"

namespace worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;
using ::testing::Not;
using testing::TemporaryFolder;
using testing::write_file;

/// Gives prepared answers, one a call.
class Answers : public base::CommandRunner {
 public:
  explicit Answers(std::vector<base::CommandResult> answers) : answers_(std::move(answers)) {}
  base::CommandResult run(const base::Command& command) override {
    commands.push_back(command.argv);
    return answers_.at(commands.size() - 1);
  }
  std::vector<std::vector<std::string>> commands;

 private:
  const std::vector<base::CommandResult> answers_;
};

base::CommandResult ended(int exit_code, const std::string& err) {
  base::CommandResult result;
  result.exit_code = exit_code;
  result.out = "/cache/data-1\n";
  result.err = "muster data prepare: reads something\nmuster data prepare: " + err + "\n";
  return result;
}

base::CommandResult killed(int signal) {
  base::CommandResult result = ended(-1, "");
  result.signal = signal;
  return result;
}

class PrepareSource : public ::testing::Test {
 protected:
  DataConfig source(const std::string& kind, const std::string& path = "") const {
    DataConfig data;
    data.source = kind;
    data.path = path;
    data.max_bytes = 1 << 20;
    data.cache_folder = (folder_ / "cache").native();
    return data;
  }
  /// The folder or the error that a job gets of these answers; "final: ..." for a mistake that no other attempt mends.
  std::string said(std::vector<base::CommandResult> answers) const {
    Answers runner(std::move(answers));
    try {
      return prepare_source(source("fixture"), {}, runner).native();
    } catch (const base::UsageError& error) {
      return std::string("final: ") + error.what();
    } catch (const std::runtime_error& error) {
      return error.what();
    }
  }
  const TemporaryFolder folder_;
};

TEST_F(PrepareSource, IsMadeByTheProgramInTheCache) {
  write_file(folder_ / "text/a.txt", "one");
  write_file(folder_ / "text/b.txt", "two");
  base::ProcessRunner runner;
  const auto made = prepare_source(source("folder", (folder_ / "text").native()), {}, runner);
  EXPECT_EQ(made.parent_path(), folder_ / "cache");
  const auto train = data::format::Dataset::open(made, "train");
  EXPECT_EQ(train.records(), 2) << "no record is held out here";
  EXPECT_EQ(find_prepared(train.description().fingerprint, folder_ / "cache"), made);
  EXPECT_FALSE(find_prepared("sha256:other", folder_ / "cache"));
  EXPECT_FALSE(find_prepared(train.description().fingerprint, folder_ / "nowhere"));
  EXPECT_THAT(
      message_of<base::UsageError>([&] { prepare_source(source("folder", (folder_ / "gone").native()), {}, runner); }),
      AllOf(HasSubstr("data.source = \"folder\", data.path = \""), HasSubstr("/gone: cannot be opened: No such")));
}

TEST_F(PrepareSource, ACacheThatTheSystemRefusesMayWorkNextTime) {
  write_file(folder_ / "cache", "a file");
  base::ProcessRunner runner;
  std::string text;
  try {
    prepare_source(source("fixture"), {}, runner);
  } catch (const base::UsageError&) {
    FAIL() << "this is nobody's mistake";
  } catch (const std::runtime_error& error) {
    text = error.what();
  }
  EXPECT_THAT(text, AllOf(HasSubstr("data.source = \"fixture\": cannot"), HasSubstr("look at data.cache_folder = \"")));
}

TEST_F(PrepareSource, TheWordsAreTheProgramsOwn) {
  Answers runner({ended(0, "")});
  DataConfig data = source("auto");
  data.man_folder = "/pages";
  const ModelTokenizer tokenizer{.path = "/model", .kind = "tokenizer.json", .sha256 = "0"};
  EXPECT_EQ(prepare_source(data, tokenizer, runner), "/cache/data-1");
  const auto& words = runner.commands.at(0);
  EXPECT_EQ(std::vector(words.begin() + 1, words.end()),
            (std::vector<std::string>{"prepare", "--from", "auto", "/pages", "--cache", data.cache_folder,
                                      "--validation", "0", "--max-bytes", "1MiB", "--tokenizer", "/model"}));
}

TEST_F(PrepareSource, OnlyAWrongSourceIsFinal) {
  EXPECT_EQ(said({ended(2, "/x: holds no files; name others")}),
            "final: data.source = \"fixture\": /x: holds no files; name others");
  EXPECT_THAT(said({ended(1, "cannot write /x: No space left on device")}),
              AllOf(HasSubstr("cannot write /x: No space left"), Not(HasSubstr("final"))));
  EXPECT_THAT(said({killed(SIGKILL)}), AllOf(HasSubstr("a signal (9) ended muster-data"), Not(HasSubstr("final"))));
  base::CommandResult not_started;
  not_started.could_not_start = "muster-data: Cannot allocate memory";
  EXPECT_THAT(said({not_started}), AllOf(HasSubstr("Cannot allocate memory"), Not(HasSubstr("final"))));
}

TEST_F(PrepareSource, AProgramThatDoesNotStartIsNamed) {
  EXPECT_THAT(said({ended(127, "libturbojpeg.so.0: cannot open shared object file")}),
              AllOf(HasSubstr("final: "), HasSubstr("muster-data does not start: libturbojpeg"),
                    HasSubstr("install what it needs")));
}

TEST_F(PrepareSource, ItsNameIsKnownBeforeItIsThere) {
  base::ProcessRunner runner;
  const auto name = name_of_source(source("fixture"), {}, runner);
  EXPECT_FALSE(std::filesystem::exists(name));
  EXPECT_EQ(prepare_source(source("fixture"), {}, runner), name);
}

}  // namespace
}  // namespace worker
