#include <gmock/gmock.h>

#include <limits>
#include <stdexcept>

#include "agent/rank/jsonl_reporter.h"
#include "tests/worker/temporary_folder.h"

namespace agent::rank {
namespace {

using ::testing::HasSubstr;
using worker::testing::read_file;
using worker::testing::TemporaryFolder;

TEST(JsonlReporter, WritesALineAnEvent) {
  const TemporaryFolder folder;
  {
    JsonlReporter reporter((folder / "m.jsonl").native(), std::nullopt);
    reporter.section(Section::kData);
    reporter.declare({{.name = "loss", .unit = "nats"}});
    reporter.step({.step = 3,
                   .values = {{"loss", 1.25}, {"validation/loss", 2.5}, {"tokens_per_s", 100}},
                   .step_ms = 8,
                   .at_ms = 77});
    reporter.resumed_from(2);
    reporter.checkpoint_saved(3, 4096, 1.5);
    reporter.leaving(93, "a \"bad\"\nthing");
  }
  const std::string text = read_file(folder / "m.jsonl");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6);
  EXPECT_THAT(text, HasSubstr(R"({"section":"data","at_ms":)"));
  EXPECT_THAT(text, HasSubstr(R"({"step":3,"loss":1.25,"validation/loss":2.5,"tokens_per_s":100,"step_ms":8,)"
                              R"("memory_bytes":0,"memory_peak_bytes":0,"bytes_communicated":0,"at_ms":77})"));
  EXPECT_THAT(text, HasSubstr(R"({"resumed":2,)"));
  EXPECT_THAT(text, HasSubstr(R"({"series":{"loss":{"unit":"nats","better":"neither","over_ranks":"mean"}},)"));
  EXPECT_THAT(text, HasSubstr(R"({"checkpoint":"step-00000003","step":3,"bytes":4096,"took_ms":1.5,)"));
  EXPECT_THAT(text, HasSubstr(R"("status":"leaving with exit code 93: a \"bad\"\u000athing")"));
}

TEST(JsonlReporter, ASeriesNamedLikeAFieldOfTheLineHasAKeyOfItsOwn) {
  const TemporaryFolder folder;
  JsonlReporter((folder / "m.jsonl").native(), std::nullopt)
      .step({.step = 3,
             .values = {{"step", 1}, {"at_ms", 2}, {"series/resumed", 3}, {"resumed", 4}, {"loss", 5}, {"loss", 6}},
             .at_ms = 77});
  EXPECT_EQ(read_file(folder / "m.jsonl"),
            R"({"step":3,"series/step":1,"series/at_ms":2,"series/resumed":3,"series/series/resumed":4,"loss":5,)"
            R"("series/loss":6,"step_ms":0,"memory_bytes":0,"memory_peak_bytes":0,"bytes_communicated":0,"at_ms":77})"
            "\n");
}

TEST(JsonlReporter, AppendsToWhatAnEarlierAttemptWrote) {
  const TemporaryFolder folder;
  worker::testing::write_file(folder / "m.jsonl", "{}\n");
  JsonlReporter((folder / "m.jsonl").native(), std::nullopt).resumed_from(1);
  EXPECT_THAT(read_file(folder / "m.jsonl"), ::testing::StartsWith("{}\n{\"resumed\":1"));
}

TEST(JsonlReporter, WritesNullForWhatJsonCannotSay) {
  const TemporaryFolder folder;
  JsonlReporter((folder / "m.jsonl").native(), std::nullopt)
      .step({.values = {{"loss", std::numeric_limits<double>::quiet_NaN()}},
             .step_ms = std::numeric_limits<double>::infinity()});
  EXPECT_THAT(read_file(folder / "m.jsonl"), HasSubstr("\"loss\":null,\"step_ms\":null,"));
}

TEST(JsonlReporter, NamesAPathItCannotOpen) {
  const auto message =
      worker::testing::message_of<std::runtime_error>([] { JsonlReporter("/nowhere/at/all/m.jsonl", std::nullopt); });
  EXPECT_THAT(message, HasSubstr("/nowhere/at/all/m.jsonl"));
  EXPECT_THAT(message, HasSubstr("MUSTER_METRICS_FILE"));
}

TEST(JsonlReporter, RendezvousIsTheFixedAddress) {
  const TemporaryFolder folder;
  JsonlReporter with((folder / "a").native(), Endpoint{"n0", 5}), without((folder / "b").native(), std::nullopt);
  EXPECT_EQ(with.rendezvous(std::nullopt), (Endpoint{"n0", 5}));
  EXPECT_THROW(without.rendezvous(std::nullopt), std::runtime_error);
}

}  // namespace
}  // namespace agent::rank
