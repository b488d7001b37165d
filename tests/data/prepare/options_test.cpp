// Goal: a command line is read as the help says, and each mistake is named with option, value and what is wanted.
#include "data/prepare/prepare_options.h"

#include <gmock/gmock.h>

namespace data::prepare {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream in(line);
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

PrepareOptions prepare_of(const std::string& line) {
  return std::get<PrepareOptions>(parse_command(words_of("prepare " + line)));
}

std::string error_of(const std::string& line) {
  try {
    parse_command(words_of(line));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "taken";
}

TEST(PrepareOptions, AreReadInAnyOrderAndInBothForms) {
  const auto options = prepare_of(
      "a.jsonl --from=jsonl --to out --validation 0.1 b.jsonl --tokenizer=/models/t5 --fields input=doc.text,target "
      "--max-bytes 2GiB --part-size 16MiB --seed 9 --jobs 3 --prefix summarize: -- --odd.jsonl");
  EXPECT_EQ(options.from, From::kJsonl);
  EXPECT_THAT(options.sources, ElementsAre("a.jsonl", "b.jsonl", "--odd.jsonl"));
  EXPECT_EQ(options.to, "out");
  EXPECT_EQ(options.validation, 0.1);
  EXPECT_EQ(options.tokenizer, "/models/t5");
  EXPECT_EQ(options.kind, RecordKind::kPair);
  EXPECT_EQ(options.first_key, "doc.text");
  EXPECT_EQ(options.second_key, "target");
  EXPECT_EQ(options.max_bytes, std::int64_t{2} << 30);
  EXPECT_EQ(options.part_bytes, 16 << 20);
  EXPECT_EQ(options.seed, 9);
  EXPECT_EQ(options.jobs, 3);
  EXPECT_EQ(options.prefix, "summarize:");
}

TEST(PrepareOptions, OfEachSource) {
  EXPECT_EQ(prepare_of("--from chess --to x --count 5 --notation uci --plies 7").notation, data::chess::Notation::kUci);
  EXPECT_EQ(prepare_of("--from packages --to x --sections 0").sections, 0);
  EXPECT_TRUE(prepare_of("--from images photos --to x --size 64 --skip-damaged").skip_damaged);
  EXPECT_TRUE(prepare_of("--from jsonl rows --to x --skip-damaged").skip_damaged);
  EXPECT_EQ(prepare_of("--from glyphs --to x --size 32 --count 72").count, 72);
  EXPECT_EQ(prepare_of("--from man --to x").sources.size(), 0U);
  EXPECT_THAT(prepare_of("--from jsonl f --to x --fields text,label=kind --labels a,b").labels, ElementsAre("a", "b"));
}

TEST(PrepareOptions, MistakesAreNamed) {
  EXPECT_THAT(error_of("prepare --to x"), AllOf(HasSubstr("--from is missing"), HasSubstr("man-pairs")));
  EXPECT_THAT(error_of("prepare --from pdf --to x"), HasSubstr("--from pdf: want one of text, jsonl"));
  EXPECT_EQ(error_of("prepare --from chess"), "--to is missing; want the folder for the data");
  EXPECT_EQ(error_of("prepare --from chess --to x --size 3"),
            "--size: --from chess has no such option; it has --to, --cache, --name-only, --validation, --seed, --jobs, "
            "--tokenizer, "
            "--prefix, "
            "--count, --notation, --plies");
  EXPECT_THAT(error_of("prepare --from shapes --to x --tokenizer bytes"),
              HasSubstr("--from shapes has no such option"));
  EXPECT_EQ(error_of("prepare --from chess --to x --seed -1"),
            "--seed -1: want a whole number from 0 to 9223372036854775807");
  EXPECT_EQ(error_of("prepare --from chess --to x --validation 0.95"),
            "--validation 0.95: want a number from 0 to 0.9");
  EXPECT_EQ(error_of("prepare --from chess --to x --validation nan"), "--validation nan: want a number from 0 to 0.9");
  EXPECT_THAT(error_of("prepare --from text f --to x --max-bytes 2GB"), HasSubstr("such as 64MiB"));
  EXPECT_THAT(error_of("prepare --from jsonl f --to x --fields target,input"), HasSubstr("want text, or input,target"));
  EXPECT_THAT(error_of("prepare --from jsonl f --to x --labels a,b"), HasSubstr("want --fields text,label"));
  EXPECT_THAT(error_of("prepare --from jsonl f --to x --fields text,label --labels a,,b"), HasSubstr("commas"));
  EXPECT_EQ(error_of("prepare --from chess --to x --to y"), "--to is given twice; give it once");
  EXPECT_EQ(error_of("prepare --from chess --to"), "--to wants a value");
  EXPECT_EQ(error_of("prepare --from images a --to x --skip-damaged=yes"),
            "--skip-damaged=yes: --skip-damaged takes no value");
  EXPECT_THAT(error_of("prepare --from chess --to x --game 3"),
              HasSubstr("there is no option --game; want one of --from, --to"));
}

TEST(PrepareOptions, TheNumberOfSourcesIsChecked) {
  EXPECT_EQ(error_of("prepare --from text --to x"), "--from text: want files or folders of text");
  EXPECT_EQ(error_of("prepare --from images a b --to x"),
            "--from images: want one folder of images, and there is \"b\"");
  EXPECT_EQ(error_of("prepare --from chess a --to x"), "--from chess: want no SOURCE, and there is \"a\"");
  EXPECT_EQ(error_of("prepare --from packages a b c --to x"), "taken");
}

TEST(Commands, AreFourAndHelp) {
  EXPECT_TRUE(std::get<ShowOptions>(parse_command(words_of("show data --json"))).json);
  EXPECT_EQ(std::get<CheckOptions>(parse_command(words_of("check data"))).folder, "data");
  const auto decode =
      std::get<DecodeOptions>(parse_command(words_of("decode data --record 7 --split validation --ids")));
  EXPECT_EQ(decode.record, 7);
  EXPECT_EQ(decode.split, "validation");
  EXPECT_TRUE(decode.ids);
  EXPECT_EQ(error_of("sho data"), "there is no command \"sho\"; want prepare, show, check or decode");
  EXPECT_EQ(error_of(""), "want a command: prepare, show, check or decode");
  EXPECT_EQ(error_of("show"), "want FOLDER, a folder that muster data prepare has written");
  EXPECT_EQ(error_of("show a b"), "\"b\" is one argument too many; want one FOLDER");
  EXPECT_EQ(error_of("decode a --record last"), "--record last: want a whole number from 0 to 9223372036854775807");
  EXPECT_EQ(std::get<HelpOptions>(parse_command(words_of("prepare --help"))).text, kPrepareHelp);
  EXPECT_EQ(std::get<HelpOptions>(parse_command(words_of("--help"))).text, kHelp);
}

TEST(Commands, TheHelpNamesEverySourceAndOptionAndFitsATerminal) {
  const std::string help = kPrepareHelp;
  const auto all = error_of("prepare --none");
  for (auto word : words_of(all.substr(all.find("want one of ") + 12))) {
    if (word.ends_with(",")) word.pop_back();
    EXPECT_THAT(help, HasSubstr(word));
  }
  for (int from = 0; from <= static_cast<int>(From::kAuto); ++from) {
    EXPECT_THAT(help, HasSubstr("\n  " + std::string(name_of(static_cast<From>(from))) + " "));
  }
  for (const char* text : {kHelp, kPrepareHelp, kShowHelp, kCheckHelp, kDecodeHelp}) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120U) << line;
  }
}

}  // namespace
}  // namespace data::prepare
