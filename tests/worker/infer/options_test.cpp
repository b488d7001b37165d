// Goal: a wrong command line is told with what is wanted, before a model is opened.
#include "worker/infer/infer_options.h"

#include <gmock/gmock.h>

#include <sstream>

#include "base/usage_error.h"
#include "spec/infer_flags.h"
#include "tests/temporary_folder.h"
#include "worker/infer/texts.h"

namespace infer {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Options parsed(const std::vector<std::string>& words) {
  return parse_options(words);
}

std::string refusal(std::vector<std::string> words) {
  try {
    parsed(std::move(words));
  } catch (const base::UsageError& error) {
    return error.what();
  }
  return "(taken)";
}

TEST(InferOptions, ReadsModelTextsAndSettings) {
  const auto options = parsed({"generate", "--step=100", "models/x", "a", "--temperature", "0.5", "b", "--top-p", "0.9",
                               "--seed", "7", "--max-new-tokens", "3", "--json"});
  EXPECT_EQ(options.command, Command::kGenerate);
  EXPECT_EQ(options.model, "models/x");
  EXPECT_THAT(options.texts, ElementsAre("a", "b"));
  EXPECT_EQ(options.step, 100);
  EXPECT_EQ(options.temperature, 0.5);
  EXPECT_EQ(options.top_p, 0.9);
  EXPECT_EQ(options.seed, 7U);
  EXPECT_EQ(options.max_new_tokens, 3);
  EXPECT_TRUE(options.json);
}

TEST(InferOptions, TextsBehindTwoDashesMayBeginWithADash) {
  EXPECT_THAT(parsed({"embed", "x", "--", "--json", "-"}).texts, ElementsAre("--json", "-"));
  EXPECT_THAT(parsed({"embed", "x", "-"}).texts, ElementsAre("-"));
}

TEST(InferOptions, SaysWhatIsWrong) {
  EXPECT_THAT(refusal({}), HasSubstr("want generate, embed or classify"));
  EXPECT_THAT(refusal({"train", "x"}), HasSubstr("\"train\": want generate"));
  EXPECT_THAT(refusal({"generate"}), HasSubstr("generate wants a MODEL"));
  EXPECT_THAT(refusal({"generate", "x", "--temprature", "1"}),
              HasSubstr("there is no option --temprature, did you mean --temperature"));
  EXPECT_THAT(refusal({"embed", "x", "--temperature", "1"}), HasSubstr("embed has no such option"));
  EXPECT_THAT(refusal({"generate", "x", "--seed"}), HasSubstr("--seed wants a value"));
  EXPECT_THAT(refusal({"generate", "x", "--json=yes"}), HasSubstr("--json takes no value"));
  EXPECT_THAT(refusal({"generate", "x", "--temperature", "-1"}), HasSubstr("--temperature -1: want a number from 0"));
  EXPECT_THAT(refusal({"generate", "x", "--temperature", "nan"}), HasSubstr("want a number"));
  EXPECT_THAT(refusal({"generate", "x", "--temperature", "1", "--top-p", "0"}), HasSubstr("above 0"));
  EXPECT_THAT(refusal({"generate", "x", "--top-p", "0.5"}), HasSubstr("give --temperature above 0"));
  EXPECT_THAT(refusal({"generate", "x", "--max-new-tokens", "0"}), HasSubstr("from 1 to"));
  EXPECT_THAT(refusal({"generate", "x", "--dtype", "int8"}), HasSubstr("one of fp32, bf16, fp16"));
  EXPECT_THAT(refusal({"generate", "x", "--device", "tpu"}), HasSubstr("cpu, cuda or cuda:N"));
  EXPECT_THAT(refusal({"generate", "x", "--step", "1", "--best"}), HasSubstr("give one of them"));
  EXPECT_THAT(refusal({"generate", "x", "text", "-f", "y"}), HasSubstr("give one of them"));
  EXPECT_THAT(refusal({"embed", "x", "--pool", "max"}), HasSubstr("one of cls, mean, last"));
}

// A flag of the table without an effect would throw std::out_of_range.
TEST(InferOptions, EveryFlagOfTheTableHasAnEffectAndIsInTheHelp) {
  const std::string help = help_text();
  for (const auto& flag : spec::kInferFlags) {
    EXPECT_THAT(help, HasSubstr(std::string(flag.name)));
    const char* command = (flag.commands & spec::kGenerates) != 0 ? "generate"
                          : flag.commands == spec::kEmbeds        ? "embed"
                                                                  : "classify";
    std::vector<std::string> words{command, "x", std::string(flag.name)};
    if (!flag.value.empty()) words.push_back("\x01");
    try {
      parsed(words);
    } catch (const base::UsageError&) {  // the value is wrong for most of them
    }
  }
  EXPECT_TRUE(parsed({"--help"}).help);
  EXPECT_TRUE(parsed({"generate", "-h"}).help);
}

TEST(InferTexts, ComeFromArgumentsLinesOrOneWholeFile) {
  const test::TemporaryFolder folder;
  const auto file = folder / "texts";
  test::write_file(file, "one\r\n\ntwo\nthree");
  std::istringstream in("a\nb\n");
  EXPECT_THAT(read_texts({.texts = {"x", "y\nz"}}, in, true), ElementsAre("x", "y\nz"));
  EXPECT_THAT(read_texts({.file = file}, in, true), ElementsAre("one", "two", "three"));
  EXPECT_THAT(read_texts({.file = file, .whole = true}, in, true), ElementsAre("one\r\n\ntwo\nthree"));
  EXPECT_THAT(read_texts({}, in, true), ElementsAre("a", "b"));
  std::istringstream again("a\nb\n"), more("c\n"), empty("\n\n");
  EXPECT_THAT(read_texts({.texts = {"-"}, .whole = true}, again, false), ElementsAre("a\nb\n"));
  EXPECT_THAT(read_texts({.file = "-"}, more, false), ElementsAre("c"));
  EXPECT_THROW(read_texts({}, empty, true), base::UsageError);
  EXPECT_THROW(read_texts({}, empty, false), base::UsageError) << "a terminal without a text";
  EXPECT_THROW(read_texts({.file = folder / "none"}, empty, false), base::UsageError);
}

}  // namespace
}  // namespace infer
