// Goal: muster-data makes data of every source, may be killed and stopped, and says what is wrong and what to do.
// Method: the real program on small sources in a temporary folder.
#include <gmock/gmock.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "data/format/dataset.h"
#include "tests/data/prepare/folder_bytes.h"
#include "tests/data/tokenizers/small_tokenizers.h"
#include "tests/places.h"
#include "tests/system/process.h"

namespace data::prepare {
namespace {

using namespace std::chrono_literals;
using ::test::Finished;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// True if the build can read tokenizer.json.
bool has_crate() {
#ifdef MUSTER_HAS_TOKENIZERS
  return true;
#else
  return false;
#endif
}

class DataProgram : public ::testing::Test {
 protected:
  Finished data(std::vector<std::string> words) {
    words.insert(words.begin(), ::test::built_program("muster-data"));
    return ::test::run(words, {}, 50s);
  }
  std::string at(const std::string& name) { return (folder_ / name).native(); }

  /// Prepares with these words and expects success.
  data::format::Dataset prepared_of(const std::string& name, std::vector<std::string> words) {
    words.insert(words.begin(), "prepare");
    words.insert(words.end(), {"--to", at(name)});
    const auto done = data(words);
    EXPECT_EQ(done.exit, 0) << done.err;
    EXPECT_EQ(done.out, "");
    const auto checked = data({"check", at(name)});
    EXPECT_EQ(checked.exit, 0) << checked.err;
    EXPECT_THAT(checked.out, HasSubstr(" is whole: "));
    return data::format::Dataset::open(folder_ / name, "train");
  }
  std::string shown(const std::string& name) { return data({"show", at(name)}).out; }
  std::string decoded(const std::string& name, int record, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"decode", at(name), "--record", std::to_string(record)});
    const auto done = data(more);
    EXPECT_EQ(done.exit, 0) << done.err;
    return done.out;
  }
  void write_lines(const std::string& name, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) {
      text += R"({"text": "muster trains )" + std::to_string(i) + R"(", "target": "a", "label": ")" +
              (i % 3 == 0 ? "good" : "bad") + "\"}\n";
    }
    ::test::write_file(folder_ / name, text);
  }

  ::test::TemporaryFolder folder_{::test::memory_folder()};
};

TEST_F(DataProgram, PreparesText) {
  for (int i = 0; i < 40; ++i) ::test::write_file(folder_ / ("in/" + std::to_string(i)), "text " + std::to_string(i));
  const auto train = prepared_of("out", {"--from", "text", at("in"), "--validation", "0.25"});
  EXPECT_EQ(train.records() + data::format::Dataset::open(folder_ / "out", "validation").records(), 40);
  EXPECT_THAT(decoded("out", 0), HasSubstr("text ("));
  EXPECT_THAT(shown("out"),
              AllOf(HasSubstr("kind         tokens\n"), HasSubstr("bytes, 257 ids"), HasSubstr(at("in"))));
}

TEST_F(DataProgram, PreparesTextPairsAndLabelsOfJsonLines) {
  write_lines("x.jsonl", 60);
  auto train = prepared_of("texts", {"--from", "jsonl", at("x.jsonl")});
  EXPECT_EQ(train.description().kind, data::format::Kind::kTokens);
  train = prepared_of("pairs", {"--from", "jsonl", at("x.jsonl"), "--fields", "input=text,target", "--prefix",
                                "do: ", "--validation", "0"});
  EXPECT_EQ(train.records(), 60);
  EXPECT_EQ(decoded("pairs", 3), "input (19 tokens): do: muster trains 3\ntarget (1 tokens): a\n");
  EXPECT_EQ(decoded("pairs", 3, {"--ids"}).substr(0, 33), "input (19 tokens): 100 111 58 32 ");
  train = prepared_of("labels", {"--from", "jsonl", at("x.jsonl"), "--fields", "text,label", "--validation", "0"});
  EXPECT_THAT(train.description().labels, ElementsAre("bad", "good"));
  EXPECT_EQ(decoded("labels", 3), "label: good\ntext (15 tokens): muster trains 3\n");
  EXPECT_THAT(shown("labels"), HasSubstr("labels       2: bad, good\n"));
  train = prepared_of("ordered", {"--from", "jsonl", at("x.jsonl"), "--fields", "text,label", "--labels", "good,bad"});
  EXPECT_THAT(train.description().labels, ElementsAre("good", "bad"));
}

TEST_F(DataProgram, PreparesManualPagesAndTheirPairs) {
  const std::string long_text(100, 'w');
  for (int i = 0; i < 600; ++i) {
    ::test::write_file(folder_ / "man/man1" / ("p" + std::to_string(i) + ".1"),
                       ".SH NAME\np \\- does thing " + std::to_string(i) + "\n.SH DESCRIPTION\n" + long_text + "\n");
  }
  auto train = prepared_of("texts", {"--from", "man", at("man"), "--max-bytes", "20KiB", "--validation", "0"});
  EXPECT_THAT(decoded("texts", 0), AllOf(HasSubstr("NAME"), HasSubstr("does thing")));
  std::int64_t bytes = 0;
  for (std::int64_t i = 0; i < train.records(); ++i) bytes += train.length(i);
  EXPECT_EQ(bytes, 20 << 10);
  train = prepared_of("pairs", {"--from", "man-pairs", at("man"), "--count", "100", "--validation", "0"});
  EXPECT_EQ(train.records(), 100);
  EXPECT_THAT(decoded("pairs", 5), AllOf(HasSubstr("input (100 tokens): www"), HasSubstr("): does thing ")));
}

TEST_F(DataProgram, PreparesPackages) {
  std::string text;
  for (int i = 0; i < 90; ++i) {
    text += "Package: p" + std::to_string(i) + "\nSection: " +
            (i % 3 == 0   ? "libs"
             : i % 3 == 1 ? "admin"
                          : "rare") +
            std::to_string(i % 3 == 2 ? i : 0) + "\nDescription: thing " + std::to_string(i) + "\n\n";
  }
  ::test::write_file(folder_ / "status", text);
  const auto train = prepared_of("out", {"--from", "packages", at("status"), "--sections", "2", "--validation", "0"});
  EXPECT_EQ(train.records(), 60);
  EXPECT_THAT(train.description().labels, ElementsAre("admin0", "libs0"));
}

TEST_F(DataProgram, PreparesGamesOfChess) {
  const auto train = prepared_of("out", {"--from", "chess", "--count", "30", "--plies", "4", "--validation", "0"});
  EXPECT_EQ(train.records(), 30);
  EXPECT_THAT(decoded("out", 0), HasSubstr(" tokens): 1. "));
  prepared_of("uci", {"--from", "chess", "--count", "30", "--plies", "4", "--notation", "uci"});
  EXPECT_THAT(decoded("uci", 0), Not(HasSubstr("1. ")));
}

TEST_F(DataProgram, PreparesImagesShapesAndGlyphs) {
  const std::string red = "P6 3 2 255\n" + std::string("\xff\0\0\xff\0\0\xff\0\0\xff\0\0\xff\0\0\xff\0\0", 18);
  for (const char* name : {"cat/1.ppm", "cat/2.ppm", "dog/1.ppm"}) ::test::write_file(folder_ / "in" / name, red);
  auto train = prepared_of("out", {"--from", "images", at("in"), "--validation", "0"});
  EXPECT_EQ(train.records(), 3);
  EXPECT_EQ(decoded("out", 2, {"--to", at("dog.ppm")}), "label: dog\nimage: 3 x 2 pixels, RGB\n");
  EXPECT_EQ(::test::read_file(folder_ / "dog.ppm"), "P6\n3 2\n255\n" + red.substr(11));
  EXPECT_THAT(shown("out"), AllOf(HasSubstr("kind         images\n"), Not(HasSubstr("tokenizer"))));

  ::test::write_file(folder_ / "in/cat/3.png", "no image");
  const auto refused = data({"prepare", "--from", "images", at("in"), "--to", at("damaged")});
  EXPECT_EQ(refused.exit, 2);
  EXPECT_THAT(refused.err, HasSubstr("3.png: "));
  const auto skipped = data({"prepare", "--from", "images", at("in"), "--to", at("skipped"), "--skip-damaged"});
  EXPECT_EQ(skipped.exit, 0);
  EXPECT_THAT(skipped.err, AllOf(HasSubstr("left out: "), HasSubstr("3.png: "), HasSubstr(": 3 records, "),
                                 HasSubstr("left out 1 record that cannot be read")));

  train = prepared_of("shapes", {"--from", "shapes", "--count", "40", "--size", "16"});
  EXPECT_EQ(train.image(0).height, 16);
  EXPECT_EQ(train.description().labels.size(), 8U);
  train = prepared_of("glyphs", {"--from", "glyphs", "--count", "40", "--size", "16"});
  EXPECT_EQ(train.description().labels.size(), 36U);
}

TEST_F(DataProgram, LeavesDamagedLinesOutAndCountsThem) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += i % 3 == 0 ? "{\"text\": null}\n" : "{\"text\": \"ab\", \"score\": NaN}\n";
  ::test::write_file(folder_ / "x.jsonl", text);
  const auto refused = data({"prepare", "--from", "jsonl", at("x.jsonl"), "--to", at("refused")});
  EXPECT_EQ(refused.exit, 2);
  EXPECT_THAT(refused.err, HasSubstr("x.jsonl:1: the key \"text\" is a JSON null; want a string"));
  const auto skipped =
      data({"prepare", "--from", "jsonl", at("x.jsonl"), "--to", at("out"), "--skip-damaged", "--validation", "0"});
  EXPECT_EQ(skipped.exit, 0) << skipped.err;
  EXPECT_THAT(skipped.err, AllOf(HasSubstr("left out: " + at("x.jsonl") + ":1: "), HasSubstr(":58: "),
                                 Not(HasSubstr(":61: ")), HasSubstr("further ones are counted"),
                                 HasSubstr("left out 34 records that cannot be read"), HasSubstr(": 66 records, ")));
}

TEST_F(DataProgram, SaysThatWhatAnEarlierCommandLeftOutIsNotCountedAgain) {
  std::string text = "no JSON\n";
  for (int i = 0; i < 4'000; ++i) text += "{\"text\": \"line " + std::to_string(i) + "\"}\n";
  ::test::write_file(folder_ / "x.jsonl", text + "no JSON either\n");
  const std::vector<std::string> words{"prepare",        "--from",       "jsonl", at("x.jsonl"), "--part-size",
                                       "1KiB",           "--jobs",       "1",     "--to",        at("out"),
                                       "--skip-damaged", "--validation", "0"};
  std::vector<std::string> argv{::test::built_program("muster-data")};
  argv.insert(argv.end(), words.begin(), words.end());
  {
    ::test::Process process(argv, {}, at("log.out"), at("log.err"));
    ASSERT_TRUE(::test::eventually([&] { return std::filesystem::exists(folder_ / "out/train-00003.mdat"); }, 40s));
    process.signal(SIGKILL);
    ASSERT_TRUE(process.wait(40s));
  }
  ASSERT_FALSE(std::filesystem::exists(folder_ / "out/data.json")) << "the whole file was faster than the test";
  const auto done = data(words);
  EXPECT_EQ(done.exit, 0) << done.err;
  EXPECT_THAT(done.err,
              HasSubstr("left out 1 record that cannot be read; those of the parts that were there before were "
                        "told then\n"));
}

TEST_F(DataProgram, PreparesWhatIsBuiltIn) {
  const auto train = prepared_of("out", {"--from", "fixture", "--max-bytes", "1MiB"});
  EXPECT_EQ(train.description().source, "the built-in text");
  prepared_of("auto", {"--from", "auto", "--max-bytes", "1MiB"});
}

TEST_F(DataProgram, OneThreadAndFourMakeTheSameBytes) {
  write_lines("x.jsonl", 500);
  prepared_of("one", {"--from", "jsonl", at("x.jsonl"), "--part-size", "2KiB", "--jobs", "1"});
  prepared_of("four", {"--from", "jsonl", at("x.jsonl"), "--part-size", "2KiB", "--jobs", "4"});
  EXPECT_THAT(test::differing(test::bytes_of(folder_ / "one"), test::bytes_of(folder_ / "four")), IsEmpty());
}

TEST_F(DataProgram, KilledAndRepeatedMakesTheSameBytes) {
  write_lines("x.jsonl", 4'000);
  const std::vector<std::string> words{"prepare", "--from", "jsonl", at("x.jsonl"), "--part-size",
                                       "1KiB",    "--jobs", "2",     "--to",        at("killed")};
  std::vector<std::string> argv{::test::built_program("muster-data")};
  argv.insert(argv.end(), words.begin(), words.end());
  for (const char* last : {"train-00003.mdat", "train-00040.mdat", "train-00090.mdat"}) {
    ::test::Process process(argv, {}, at("log.out"), at("log.err"));
    ASSERT_TRUE(::test::eventually([&] { return std::filesystem::exists(folder_ / "killed" / last); }, 40s));
    process.signal(SIGKILL);
    ASSERT_TRUE(process.wait(40s));
  }
  const auto done = data(words);
  EXPECT_EQ(done.exit, 0) << done.err;
  EXPECT_THAT(done.err, ::testing::AnyOf(HasSubstr("parts were there before"), HasSubstr("is finished already")));
  prepared_of("whole", {"--from", "jsonl", at("x.jsonl"), "--part-size", "1KiB"});
  EXPECT_THAT(test::differing(test::bytes_of(folder_ / "killed"), test::bytes_of(folder_ / "whole")), IsEmpty());
}

TEST_F(DataProgram, SignalsStopItAndSayHowItGoesOn) {
  for (const auto& [number, exit] : {std::pair{SIGINT, 130}, {SIGTERM, 143}}) {
    const auto to = "out" + std::to_string(number);
    // Images enough for hours.
    ::test::Process process(
        {::test::built_program("muster-data"), "prepare", "--from", "shapes", "--count", "50000000", "--to", at(to)},
        {}, at(to + ".out"), at(to + ".err"));
    ASSERT_TRUE(
        ::test::eventually([&] { return std::filesystem::exists(folder_ / to / "train-00000.mdat.part"); }, 40s));
    process.signal(number);
    EXPECT_EQ(process.wait(40s), exit);
    EXPECT_THAT(::test::read_file(folder_ / (to + ".err")),
                HasSubstr("muster data prepare: stopped before a part was whole; the same command begins again\n"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / to / "train-00000.mdat.part"));
  }
}

TEST_F(DataProgram, DrawsOneLineAgainOnATerminal) {
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    const auto program = ::test::built_program("muster-data");
    ::execl(program.c_str(), program.c_str(), "prepare", "--from", "shapes", "--count", "50000000", "--to",
            at("out").c_str(), nullptr);
    ::_exit(127);
  }
  ASSERT_GT(child, 0);
  std::string seen;
  std::array<char, 1024> piece{};
  while (seen.find("\r\033[Kmuster data prepare: 0 of 12,208 parts, ") == std::string::npos) {
    const auto got = ::read(terminal, piece.data(), piece.size());
    if (got <= 0) break;
    seen.append(piece.data(), static_cast<std::size_t>(got));
  }
  EXPECT_THAT(seen, HasSubstr("\r\033[Kmuster data prepare: 0 of 12,208 parts, "));
  ASSERT_EQ(::write(terminal, "\x03", 1), 1);  // Ctrl-C
  for (;;) {
    const auto got = ::read(terminal, piece.data(), piece.size());
    if (got <= 0) break;
    seen.append(piece.data(), static_cast<std::size_t>(got));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ::close(terminal);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 130) << status;
  EXPECT_THAT(seen,
              HasSubstr("\r\033[Kmuster data prepare: stopped before a part was whole; the same command begins again"));
}

TEST_F(DataProgram, RefusesOtherOptionsAnotherSourceAndAnotherTokenizer) {
  write_lines("x.jsonl", 20);
  prepared_of("out", {"--from", "jsonl", at("x.jsonl")});
  const auto refusal = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "prepare");
    words.insert(words.end(), {"--to", at("out")});
    const auto done = data(words);
    EXPECT_EQ(done.exit, 2);
    return done.err;
  };
  EXPECT_THAT(refusal({"--from", "jsonl", at("x.jsonl"), "--seed", "2"}), HasSubstr("seed was 1 and is 2"));
  write_lines("x.jsonl", 21);
  EXPECT_THAT(refusal({"--from", "jsonl", at("x.jsonl")}), HasSubstr("from another source: source was \"jsonl text="));
  if (!has_crate()) GTEST_SKIP() << "this build reads no tokenizer.json";
  ::test::write_file(folder_ / "words/tokenizer.json", data::tokenizers::test::words().dump());
  EXPECT_THAT(refusal({"--from", "jsonl", at("x.jsonl"), "--tokenizer", at("words")}),
              HasSubstr("tokenizer was \"bytes "));
}

TEST_F(DataProgram, CopiesTheTokenizerAndKeepsSpecialTokensOut) {
  if (!has_crate()) GTEST_SKIP() << "this build reads no tokenizer.json";
  write_lines("x.jsonl", 20);
  ::test::write_file(folder_ / "words/tokenizer.json", data::tokenizers::test::words().dump());
  ::test::write_file(folder_ / "words/tokenizer_config.json",
                     R"({"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"})");
  const auto train =
      prepared_of("out", {"--from", "jsonl", at("x.jsonl"), "--tokenizer", at("words"), "--validation", "0"});
  EXPECT_EQ(train.length(0), 3) << "muster, trains and the unknown number, without [CLS] and [SEP]";
  EXPECT_EQ(train.ids(0, 0)[0], 5);
  EXPECT_THAT(train.description().prefix, ElementsAre(1U));
  EXPECT_THAT(train.description().suffix, ElementsAre(2U));
  EXPECT_EQ(train.description().pad, 3);
  EXPECT_EQ(test::bytes_of(folder_ / "out/tokenizer"), test::bytes_of(folder_ / "words"));
  std::filesystem::remove_all(folder_ / "words");
  EXPECT_THAT(decoded("out", 0), HasSubstr("text (3 tokens): muster trains"));

  ::test::write_file(folder_ / "odd.json", data::tokenizers::test::words().dump());
  prepared_of("file", {"--from", "jsonl", at("x.jsonl"), "--tokenizer", at("odd.json")});
  EXPECT_TRUE(std::filesystem::exists(folder_ / "file/tokenizer/tokenizer.json"));

  auto other = data::tokenizers::test::words();
  other["model"]["vocab"]["other"] = 7;
  ::test::write_file(folder_ / "out/tokenizer/tokenizer.json", other.dump());
  const auto checked = data({"check", at("out")});
  EXPECT_EQ(checked.exit, 2);
  EXPECT_THAT(checked.err, HasSubstr("is another tokenizer (sha256 "));
}

TEST_F(DataProgram, PrintsTheFolderThatDataHaveInACache) {
  ::test::write_file(folder_ / "in/a.txt", "some text");
  const std::vector<std::string> words{"prepare", "--from",    "text",         at("in"),
                                       "--cache", at("cache"), "--validation", "0"};
  const auto first = data(words);
  ASSERT_EQ(first.exit, 0) << first.err;
  EXPECT_THAT(first.out, ::testing::MatchesRegex(at("cache") + "/data-[0-9a-f]{16}\n"));
  EXPECT_THAT(first.err, HasSubstr("1 records, "));
  const auto again = data(words);
  EXPECT_EQ(again.out, first.out);
  EXPECT_THAT(again.err, HasSubstr(" is finished already"));
  ::test::write_file(folder_ / "in/a.txt", "other text");
  auto only_name = words;
  only_name.push_back("--name-only");
  const auto named = data(only_name);
  EXPECT_NE(named.out, first.out);
  EXPECT_FALSE(std::filesystem::exists(named.out.substr(0, named.out.size() - 1)));
  EXPECT_EQ(data(words).out, named.out);
  EXPECT_THAT(data({"prepare", "--from", "text", at("in"), "--cache", at("in/cache")}).err,
              HasSubstr("--cache " + at("in/cache") + ": lies in the source "));
  EXPECT_THAT(data({"prepare", "--from", "text", at("in"), "--to", at("x"), "--name-only"}).err,
              HasSubstr("--name-only: names a folder of a cache; want --cache"));
}

TEST_F(DataProgram, AFolderThatTheSystemRefusesIsNoMistakeOfTheCommand) {
  ::test::write_file(folder_ / "in/a.txt", "some text");
  ::test::write_file(folder_ / "file", "");
  for (const char* option : {"--to", "--cache"}) {
    const auto done = data({"prepare", "--from", "text", at("in"), option, at("file/below")});
    EXPECT_EQ(done.exit, 1) << option;
    EXPECT_THAT(done.err, HasSubstr(at("file/below"))) << option;
  }
}

TEST_F(DataProgram, CheckNamesTheDamage) {
  write_lines("x.jsonl", 20);
  prepared_of("out", {"--from", "jsonl", at("x.jsonl"), "--validation", "0"});
  const auto file = folder_ / "out/train-00000.mdat";
  auto bytes = ::test::read_file(file);
  bytes[4100] ^= 1;
  ::test::write_file(file, bytes);
  auto checked = data({"check", at("out")});
  EXPECT_EQ(checked.exit, 2);
  EXPECT_THAT(checked.err, AllOf(HasSubstr("train-00000.mdat"), HasSubstr("block 0"), HasSubstr("prepare")));
  std::filesystem::resize_file(file, 4200);
  checked = data({"check", at("out")});
  EXPECT_EQ(checked.exit, 2);
  EXPECT_THAT(checked.err, HasSubstr("truncated"));
  EXPECT_EQ(checked.out, "");
}

TEST_F(DataProgram, SaysWhatIsWrongInOneLineAndWhatToDo) {
  struct Case {
    std::vector<std::string> words;
    const char* says;
  };
  ::test::write_file(folder_ / "bad.jsonl", "{\"text\": 1}\n");
  ::test::write_file(folder_ / "in/a.txt", "text");
  const Case cases[] = {
      {{}, "muster data: want a command: prepare, show, check or decode; see muster data --help\n"},
      {{"prepare", "--from", "chess"},
       "muster data prepare: --to is missing; want the folder for the data; see muster "
       "data prepare --help\n"},
      {{"prepare", "--from", "chess", "--to", at("a"), "--cache", at("b")},
       "--cache: --to names the folder of the data already; give one of the two"},
      {{"prepare", "--from", "jsonl", at("bad.jsonl"), "--to", at("a")},
       "bad.jsonl:1: the key \"text\" is a JSON number"},
      {{"prepare", "--from", "text", at("gone"), "--to", at("b")}, "/gone: cannot be opened: No such file"},
      {{"prepare", "--from", "text", at("in"), "--to", at("in/out")}, "lies in the source "},
      {{"prepare", "--from", "text", at("in"), "--to", at("c"), "--tokenizer", at("none")}, "no such tokenizer"},
      {{"show", at("in")}, "has no data.json: it is no prepared data, or unfinished; run the same `muster data"},
      {{"check", at("in")}, "has no data.json"},
      {{"decode", at("in")}, "has no data.json"}};
  for (const auto& [words, says] : cases) {
    const auto done = data(words);
    EXPECT_EQ(done.exit, 2) << says;
    EXPECT_EQ(done.out, "");
    EXPECT_THAT(done.err, HasSubstr(says));
    EXPECT_TRUE(done.err.ends_with("\n"));
  }
  prepared_of("out", {"--from", "chess", "--count", "5", "--plies", "4"});
  EXPECT_THAT(data({"decode", at("out"), "--record", "5"}).err, HasSubstr("records, counted from 0; want a smaller"));
  EXPECT_THAT(data({"decode", at("out"), "--split", "test"}).err, HasSubstr("test"));
  const auto help = data({"prepare", "--help"});
  EXPECT_EQ(help.exit, 0);
  EXPECT_THAT(help.out, HasSubstr("--from KIND [SOURCE...] --to FOLDER"));
}

}  // namespace
}  // namespace data::prepare
