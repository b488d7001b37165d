// Goal: every job file that muster init writes is one that muster takes, at both sizes.
// Method: each is read as muster submit reads it; folders need not be there.
#include "cli/init.h"

#include <gmock/gmock.h>

#include "jobfile/job_file.h"
#include "jobfile/job_keys.h"
#include "schema/recipes.h"

namespace cli {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;

TEST(Init, EachStarterIsAJobFileWithoutAProblem) {
  for (const bool full : {false, true}) {
    ASSERT_FALSE(starters(full).empty());
    for (const auto& name : starters(full)) {
      SCOPED_TRACE(name + (full ? ", full" : ""));
      const std::string text(starter(name, full));
      if (text.find("\nextends = ") != std::string::npos) continue;  // of a file beside it
      const auto file =
          jobfile::compose(jobfile::JobSource::of_text(text, name + ".toml", "/"), {}, jobfile::FileChecks::kSkip);
      EXPECT_THAT(file.problems, IsEmpty());
      EXPECT_TRUE(text.starts_with("#")) << "it begins by saying what it is";
    }
  }
}

TEST(Init, EachRecipeHasAStarter) {
  for (const auto& recipe : schema::recipes()) {
    const std::string text(starter(recipe.kind, false));
    ASSERT_NE(text, "") << recipe.kind;
    EXPECT_NE(text.find("recipe = \"" + std::string(recipe.kind) + "\""), std::string::npos) << recipe.kind;
  }
  EXPECT_EQ(starter("gpt5", false), "");
  EXPECT_THAT(starters(true), Contains("chess-lora"));
}

}  // namespace
}  // namespace cli
