// Goal: the keys of [report] arrive as they were written, and a mistake in one is told with place, value and remedy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/jobfile/job_file.h"
#include "spec/jobfile/validate.h"

namespace jobfile {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

JobFile read_report(const std::string& rest, const std::vector<std::string>& set = {},
                    const std::string& program = "command = [\"true\"]\n") {
  std::vector<Override> overrides;
  for (const auto& assignment : set) overrides.push_back(override_of_set(assignment));
  return compose(JobSource::of_text("name = \"a\"\n" + program + rest, "job.toml", "/tmp"), overrides,
                 FileChecks::kSkip);
}

TEST(ReportKeys, AllOfThemArrive) {
  const auto file = read_report(R"([report]
checkpoints = "$MUSTER_CHECKPOINT_FOLDER/step-*"
tensorboard = "runs/${MUSTER_JOB_ID}"
log = {loss = 'loss ([\d.]+)', step = 'step (\d+)'}
)");
  ASSERT_THAT(file.problems, IsEmpty());
  EXPECT_EQ(file.spec.report().checkpoints(), "$MUSTER_CHECKPOINT_FOLDER/step-*") << "no path of the job file's folder";
  EXPECT_EQ(file.spec.report().tensorboard(), "runs/${MUSTER_JOB_ID}");
  EXPECT_EQ(sorted(file.spec.report().log()),
            (std::map<std::string, std::string>{{"loss", R"(loss ([\d.]+))"}, {"step", R"(step (\d+))"}}));
}

TEST(ReportKeys, ATableOfItsOwnAndTheCommandLineSayTheSame) {
  const auto file = read_report("[report.log]\nloss = 'x (.)'\n\"validation/loss\" = 'v (.)'\n",
                                {"report.log.loss=loss ([\\d.]+)", "report.checkpoints=ckpt/*"});
  ASSERT_THAT(file.problems, IsEmpty());
  EXPECT_EQ(file.spec.report().checkpoints(), "ckpt/*");
  EXPECT_EQ(sorted(file.spec.report().log()),
            (std::map<std::string, std::string>{{"loss", R"(loss ([\d.]+))"}, {"validation/loss", "v (.)"}}));
}

TEST(ReportKeys, ABadValueIsToldWithPlaceAndRemedy) {
  struct {
    const char* line;
    const char* problem;
  } const cases[] = {
      {"log = {loss = 'loss ([\\d.+'}", "job.toml:4:15: report.log.loss \"loss ([\\d.+\": want a regular expression"},
      {"log = {loss = 'loss (?=x)(.)'}", "RE2, which has no lookaround"},
      {"log = {loss = 'loss [(.+'}", "want a regular expression: missing ]"},
      {"log = {loss = 'loss: (.+'}", "write a bracket of the text as \\( or \\)"},
      {"log = {loss = 'loss'}", "want a group around the number; such as 'loss ([\\d.]+)'"},
      {"log = {loss = '((((x{500}){2}){500}){500})'}", "want a regular expression"},
      {"log = {loss = 3}", "report.log.loss \"3\": want a pattern in single quotes, such as 'loss ([\\d.]+)'"},
      {"log = 'loss'", "report.log \"loss\": want a table of series = 'pattern'"},
      {"log = {\"my loss\" = '(.)'}", "want the name of a series: letters, digits"},
      {"log = {at_ms = '(.)'}", "this name has a meaning of its own in reports"},
      {"checkpoints = \"ckpt/**/step-*\"", "write each folder as a * of its own"},
      {"checkpoints = \"~/ckpt/*\"", "want a path without \"~\"; write $HOME/ckpt/*"},
      {"checkpoints = \"*\"", "want the names of checkpoints alone; such as ckpt/step-*"},
      {"checkpoints = \"ckpt/step-[0-9\"", "want a ] for each [ of a name; write [[] for the character [ itself"},
      {"checkpoints = \"ckpt[1/step]-*\"", "want a ] for each [ of a name"},
      {"checkpoints = \"ckpt/[!]x\"", "want a ] for each [ of a name"},
      {"checkpoints = \"${JOB/ckpt-*\"", "want ${NAME} with the name of a variable"},
      {"checkpoints = 3", "report.checkpoints \"3\": want a text of one line"},
      {"tensorboard = \"runs/*\"", "want one folder, without wildcards"},
      {"tensorbord = \"runs\"", "unknown key, did you mean report.tensorboard"},
      {"step = 'step (.)'",
       "report.step: unknown key; [report] says where to look, and values of the log are patterns"},
      {"from_log = 3", "report.from_log: unknown key; [report] says where to look"},
  };
  for (const auto& one : cases) {
    const auto file = read_report(std::string("[report]\n") + one.line + "\n");
    EXPECT_THAT(file.problems, ElementsAre(HasSubstr(one.problem))) << one.line;
  }
}

TEST(ReportKeys, BracketsThatAreWholeAreTaken) {
  for (const char* path : {"ckpt/step-[0-9]*", "ckpt/[]x]*", "ckpt/[!]x]*", "ckpt/a[[]b-*", "ckpt/a\\\\[b-*"}) {
    EXPECT_THAT(read_report("[report]\ncheckpoints = \"" + std::string(path) + "\"\n").problems, testing::IsEmpty())
        << path;
  }
}

TEST(ReportKeys, PatternsAreFewAndShort) {
  std::string many = "[report.log]\n";
  for (int i = 0; i < 33; ++i) many += "s" + std::to_string(i) + " = '(.)'\n";
  EXPECT_THAT(read_report(many).problems, ElementsAre(HasSubstr("report.log \"33 patterns\": want at most 32")));
  EXPECT_THAT(read_report("[report.log]\nloss = '" + std::string(300, 'x') + "(.)'\n").problems,
              ElementsAre(HasSubstr("want at most 256 bytes")));
}

TEST(ReportKeys, ARecipeReportsByItself) {
  const std::string recipe = "[train]\nsteps = 10\n";
  EXPECT_THAT(read_report("[report]\ncheckpoints = \"c/*\"\n", {}, recipe).problems,
              ElementsAre(HasSubstr("report.checkpoints \"c/*\": want a command; a recipe reports by itself")));
  EXPECT_THAT(read_report("[report.log]\nloss = '(.)'\n", {}, recipe).problems,
              ElementsAre(HasSubstr("report.log: want a command")));
}

}  // namespace
}  // namespace jobfile
