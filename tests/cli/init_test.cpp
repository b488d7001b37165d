// Goal: every job file that muster init writes is one that muster takes, at both sizes.
// Method: each is read as muster submit reads it, with no other file beside it; folders need not be there.
#include "cli/cli_command.h"

#include <gmock/gmock.h>

#include <sstream>
#include <string>

#include "spec/jobfile/job_file.h"
#include "spec/jobfile/job_keys.h"
#include "spec/recipes.h"
#include "tests/places.h"
#include "tests/system/process.h"

namespace cli {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

/// The lines before the first that is no comment.
std::string leading_comment(const std::string& text) {
  std::istringstream in(text);
  std::string out;
  for (std::string line; std::getline(in, line) && line.starts_with("#");) out += line + "\n";
  return out;
}

/// The value of data.prepared.
std::string prepared_in(const std::string& text) {
  static const std::string kKey = "\nprepared = \"";
  const auto at = text.find(kKey);
  if (at == std::string::npos) return "(no data.prepared)";
  const auto begin = at + kKey.size();
  return text.substr(begin, text.find('"', begin) - begin);
}

TEST(Init, EachStarterIsAJobFileWithoutAProblem) {
  for (const bool full : {false, true}) {
    ASSERT_FALSE(starters(full).empty());
    for (const auto& name : starters(full)) {
      SCOPED_TRACE(name + (full ? ", full" : ""));
      const std::string text(starter(name, full));
      const auto file =
          jobfile::compose(jobfile::JobSource::of_text(text, name + ".toml", "/"), {}, jobfile::FileChecks::kSkip);
      EXPECT_THAT(file.problems, IsEmpty());
      EXPECT_TRUE(text.starts_with("# ")) << "it begins by saying what it is";
      const std::string lead = leading_comment(text);
      EXPECT_THAT(lead, HasSubstr("muster data prepare --from "));
      EXPECT_THAT(lead, ContainsRegex("muster submit (--follow )?" + name + "\\.toml")) << "the file that init writes";
      EXPECT_THAT(lead, HasSubstr("--to " + prepared_in(text))) << "the data that the job reads";
    }
  }
}

TEST(Init, EachRecipeHasAStarter) {
  for (const auto& recipe : spec::recipes()) {
    const std::string text(starter(recipe.kind, false));
    ASSERT_NE(text, "") << recipe.kind;
    EXPECT_NE(text.find("recipe = \"" + std::string(recipe.kind) + "\""), std::string::npos) << recipe.kind;
  }
  EXPECT_EQ(starter("gpt5", false), "");
}

// A training at its full size goes on for days, so nothing of it may be lost.
TEST(Init, EachRecipeHasAFullSizeThatKeepsItsModel) {
  for (const auto& name : starters(false)) EXPECT_NE(starter(name, true), "") << name;
  for (const auto& recipe : spec::recipes()) EXPECT_NE(starter(recipe.kind, true), "") << recipe.kind;
  for (const auto& name : starters(true))
    EXPECT_NE(starter(name, true).find("\nexport_folder = \"models/"), std::string_view::npos) << name;
}

TEST(Init, WritesTheFileThatItsLinesName) {
  const test::TemporaryFolder folder;
  const auto init = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"/bin/sh", "-c", "cd \"$0\" && exec \"$@\"", folder.path().native(),
                                 ::test::built_program("muster"), "init"});
    return test::run(words, {}, 20s);
  };
  const auto done = init({"masked_lm", "--full"});
  EXPECT_EQ(done.exit, 0) << done.err;
  EXPECT_EQ(done.out, "wrote masked-lm.toml; its first lines say how to make the data and submit it\n");
  EXPECT_EQ(test::read_file(folder / "masked-lm.toml"), starter("masked-lm", true));
  const auto again = init({"masked-lm"});
  EXPECT_EQ(again.exit, 2);
  EXPECT_THAT(again.err, HasSubstr("masked-lm.toml is there already; give another name: -o FILE"));
  EXPECT_EQ(init({"chess-lora", "-o", "my adapters.toml"}).exit, 0);
  const std::string mine = test::read_file(folder / "my adapters.toml"), own(starter("chess-lora", false));
  EXPECT_THAT(leading_comment(mine), HasSubstr("muster submit --follow 'my adapters.toml'"));
  EXPECT_THAT(leading_comment(mine), HasSubstr("that chess.toml has trained"));
  EXPECT_EQ(mine.substr(leading_comment(mine).size()), own.substr(leading_comment(own).size()));
  const auto unknown = init({"gpt5"});
  EXPECT_EQ(unknown.exit, 2);
  EXPECT_THAT(unknown.err,
              HasSubstr("there is no job file \"gpt5\"; want one of: chess chess-lora pythia t5 bert masked-lm dino"));
}

}  // namespace
}  // namespace cli
