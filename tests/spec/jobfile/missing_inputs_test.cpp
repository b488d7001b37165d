// Goal: a person is told, when a job is submitted, that its data or its model are not there.
#include <gmock/gmock.h>

#include "spec/jobfile/job_file.h"
#include "tests/system/process.h"

namespace jobfile {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> missing_of(const std::string& text, const std::filesystem::path& folder) {
  const auto file = compose(JobSource::of_text("name = \"a\"\n" + text, "job.toml", folder), {}, FileChecks::kSkip);
  EXPECT_THAT(file.problems, IsEmpty());
  return missing_inputs(file.spec);
}

TEST(MissingInputs, AreFoldersOfARecipeWithoutTheFileThatIsMadeLast) {
  const test::TemporaryFolder folder;
  const std::string text =
      "[data]\nprepared = \"data/a\"\n[model]\nfamily = \"bert\"\npretrained = \"models/b\"\n[train]\n"
      "recipe = \"classify\"\n";
  const std::string data = folder / "data/a", model = folder / "models/b";
  std::filesystem::create_directories(data);
  const std::string no_model = "model.pretrained = \"" + model +
                               "\" has no config.json on this machine; the model must be there before the job starts";
  EXPECT_THAT(
      missing_of(text, folder.path()),
      ElementsAre("data.prepared = \"" + data +
                      "\" has no data.json on this machine; muster data prepare must have finished there before "
                      "the job starts",
                  no_model));
  test::write_file(folder / "data/a/data.json", "{}");
  EXPECT_THAT(missing_of(text, folder.path()), ElementsAre(no_model));
  std::filesystem::create_directories(model);
  test::write_file(folder / "models/b/config.json", "{}");
  EXPECT_THAT(missing_of(text, folder.path()), IsEmpty());
}

TEST(MissingInputs, AreNoneOfAProgramOrOfASource) {
  EXPECT_THAT(missing_of("command = [\"true\"]\n", "/"), IsEmpty());
  EXPECT_THAT(missing_of("[data]\nsource = \"man\"\n", "/"), IsEmpty());
}

}  // namespace
}  // namespace jobfile
