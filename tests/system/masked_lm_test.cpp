// Goal: the job file that muster init masked-lm writes trains as its first lines say, and its model learns.
// Method: the real programs and local processes; a quarter of a megabyte of text, and thirty of its steps.
#include <gmock/gmock.h>

#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/system/world.h"

namespace test {
namespace {

using ::testing::HasSubstr;

TEST(MaskedLm, ItsExampleLearnsToFillInWords) {
  World world;
  const auto file = (world.folder() / "masked-lm.toml").native();
  const auto done = [&](const std::vector<std::string>& words) {
    const auto finished = world.cli(words, 180s);
    EXPECT_EQ(finished.exit, 0) << words.front() << ": " << finished.err;
    return finished.out;
  };
  done({"init", "masked-lm", "-o", file});
  // "auto" is a small text that is built in where a machine has no manual pages.
  done({"data", "prepare", "--from", "auto", "--max-bytes", "256KiB", "--to", world.folder() / "data/man"});
  world.start_daemon();
  const auto submitted = done({"submit", file, "--json", "--env", "OMP_NUM_THREADS=1", "--set", "train.steps=30",
                               "--set", "train.validation_every_steps=15"});
  const auto job = Json::parse(submitted).at("job_id").dump();
  world.until_state(job, "succeeded", 180s);
  std::map<int, double> losses, accuracies;
  for (const auto& row : world.metrics(job)) {
    const int step = row.at("step").get<int>();
    const auto& series = row.at("series");
    if (series.contains("loss")) losses[step] = series.at("loss").get<double>();
    if (series.contains("validation/accuracy")) accuracies[step] = series.at("validation/accuracy").get<double>();
  }
  ASSERT_EQ(losses.size(), 30U);
  EXPECT_LT(losses.at(30), 0.8 * losses.at(1));
  ASSERT_EQ(accuracies.size(), 2U);
  EXPECT_GT(accuracies.at(30), 0.05) << "of 257 bytes, a guess is right for 1 in 257";
  const auto config = read_file(world.folder() / "models/masked-lm/config.json");
  EXPECT_THAT(config, HasSubstr("BertForMaskedLM"));
  // The export, from which bert.toml may start, has a vector for each text.
  const auto of_export = done({"embed", world.folder() / "models/masked-lm", "--tokenizer", "bytes", "a text"});
  std::istringstream vector(of_export);
  EXPECT_EQ(std::distance(std::istream_iterator<double>(vector), {}), 96);
  EXPECT_EQ(done({"embed", job, "a text"}), of_export) << "the newest checkpoint has the weights of the export";
}

}  // namespace
}  // namespace test
