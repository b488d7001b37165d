// Goal: every line of a JSONL file is read once whatever its parts are, and each mistake is named with file, line and
// key.
#include "data/prepare/text/text_source.h"

#include <gmock/gmock.h>

#include "tests/temporary_folder.h"

namespace data::prepare {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Jsonl : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& text) {
    test::write_file(folder_ / name, text);
    return folder_ / name;
  }

  static std::vector<std::string> read_all(const JsonlOptions& options) {
    const auto source = open_jsonl(options);
    std::vector<std::string> out;
    for (std::int64_t part = 0; part < source.parts; ++part) {
      source.read(part, [&](const TextRecord& record) {
        auto line = std::string(record.text);
        if (source.kind == RecordKind::kPair) line += " -> " + std::string(record.target);
        if (source.kind == RecordKind::kLabelled)
          line += " = " + source.labels.at(static_cast<std::size_t>(record.label));
        out.push_back(std::move(line));
      });
    }
    return out;
  }

  /// The error about a file with this text, by its name in the folder.
  std::string refusal(const std::string& text, JsonlOptions options = {}) {
    options.files = {write("x.jsonl", text)};
    return refusal_of(options);
  }

  std::string refusal_of(const JsonlOptions& options) {
    try {
      read_all(options);
    } catch (const std::runtime_error& error) {
      std::string what = error.what();
      const auto at = what.find(folder_.path().native() + "/");
      return at == std::string::npos ? what : what.erase(at, folder_.path().native().size() + 1);
    }
    return "read";
  }

  test::TemporaryFolder folder_;
};

TEST_F(Jsonl, ReadsTextsPairsAndLabels) {
  const auto file = write("a.jsonl",
                          "{\"text\": \"one\\n\", \"target\": \"1\", \"label\": \"odd\", \"more\": [1]}\r\n\n  \n"
                          "{\"label\": \"even\", \"target\": \"2\", \"text\": \"tw\\u00f6\"}");
  EXPECT_THAT(read_all({.files = {file}}), ElementsAre("one\n", "tw\xc3\xb6"));
  EXPECT_THAT(read_all({.files = {file}, .kind = RecordKind::kPair}), ElementsAre("one\n -> 1", "tw\xc3\xb6 -> 2"));
  EXPECT_THAT(read_all({.files = {file}, .kind = RecordKind::kLabelled}),
              ElementsAre("one\n = odd", "tw\xc3\xb6 = even"));
  EXPECT_THAT(open_jsonl({.files = {file}, .kind = RecordKind::kLabelled}).labels, ElementsAre("even", "odd"));
}

TEST_F(Jsonl, FindsKeysInsideObjects) {
  const auto file = write("a.jsonl", R"({"translation": {"en": "house", "de": "Haus"}})"
                                     "\n"
                                     R"({"translation.en": "tree", "translation": {"de": "Baum"}})");
  EXPECT_THAT(
      read_all(
          {.files = {file}, .kind = RecordKind::kPair, .text_key = "translation.en", .target_key = "translation.de"}),
      ElementsAre("house -> Haus", "tree -> Baum"));
}

TEST_F(Jsonl, LabelsThatAreNumbersAreSortedByValue) {
  const auto file =
      write("a.jsonl",
            "{\"text\": \"a\", \"label\": 10}\n{\"text\": \"b\", \"label\": 9}\n{\"text\": \"c\", \"label\": -1}\n");
  EXPECT_THAT(open_jsonl({.files = {file}, .kind = RecordKind::kLabelled}).labels, ElementsAre("-1", "9", "10"));
  EXPECT_THAT(read_all({.files = {file}, .kind = RecordKind::kLabelled, .labels = {"10", "9", "-1"}}),
              ElementsAre("a = 10", "b = 9", "c = -1"));
  EXPECT_THAT(refusal_of({.files = {file}, .kind = RecordKind::kLabelled, .labels = {"10", "-1"}}),
              HasSubstr("a.jsonl:2: the label \"9\" is not one of the 2 labels given; add it"));
}

TEST_F(Jsonl, AnyPartsGiveEachLineOnceInOrder) {
  std::string text;
  std::vector<std::string> want;
  for (int i = 0; i < 40; ++i) {
    want.push_back(std::string(static_cast<std::size_t>(i * 7 % 23), 'x') + std::to_string(i));
    text += "{\"text\": \"" + want.back() + "\"}" + (i == 39 ? "" : i % 5 == 0 ? "\n\n" : "\n");
  }
  const auto file = write("a.jsonl", text);
  for (std::int64_t bytes = 1; bytes <= std::ssize(text) + 1; bytes += bytes < 80 ? 1 : 37) {
    ASSERT_EQ(read_all({.files = {file}, .part_bytes = bytes}), want) << bytes << " bytes a part";
  }
}

TEST_F(Jsonl, LinesLongerThanAReadAreWhole) {
  const std::string big(3 << 20, 'y');
  const auto file = write("a.jsonl", "{\"text\": \"" + big + "\"}\n{\"text\": \"z\"}\n");
  EXPECT_THAT(read_all({.files = {file}, .part_bytes = 1 << 20}), ElementsAre(big, "z"));
}

TEST_F(Jsonl, FilesFollowOneAnother) {
  const auto a = write("a.jsonl", "{\"text\": \"1\"}\n"), empty = write("empty.jsonl", ""),
             b = write("b.jsonl", "{\"text\": \"2\"}\n");
  EXPECT_THAT(read_all({.files = {b, empty, a}}), ElementsAre("2", "1"));
  EXPECT_EQ(open_jsonl({.files = {empty}}).parts, 1);
  EXPECT_THAT(read_all({.files = {empty}}), ElementsAre());
}

TEST_F(Jsonl, MistakesAreNamedWithFileLineKeyAndRemedy) {
  const std::string good = "{\"text\": \"a\"}\n\n";
  EXPECT_THAT(refusal(good + "{\"txt\": 1, \"id\": 2}\n"),
              HasSubstr("x.jsonl:3: there is no key \"text\" (keys: id, txt); add it to the line, or name the key"));
  EXPECT_THAT(refusal(good + "{\"text\": 5}\n"),
              HasSubstr("x.jsonl:3: the key \"text\" is a JSON number; want a string"));
  EXPECT_THAT(refusal(good + "{\"text\": \"a\"\n"), HasSubstr("x.jsonl:3: is not JSON from byte"));
  EXPECT_THAT(refusal(good + "{\"text\": \"\xff\"}\n"), HasSubstr("x.jsonl:3: is not JSON from byte 11 of the line"));
  EXPECT_THAT(refusal(good + "[1]\n"), HasSubstr("x.jsonl:3: is a JSON array; want an object"));
  EXPECT_THAT(refusal(good, {.kind = RecordKind::kPair}), HasSubstr("x.jsonl:1: there is no key \"target\""));
  EXPECT_THAT(refusal("{\"text\": \"a\", \"label\": 1.5}", {.kind = RecordKind::kLabelled}),
              HasSubstr("x.jsonl:1: the key \"label\" is a JSON number; want a label"));
  EXPECT_THAT(refusal(good + "{}", {.part_bytes = 3}), HasSubstr("x.jsonl:3: there is no key \"text\" (keys: none)"));
}

TEST_F(Jsonl, NumbersThatPythonWritesAreRead) {
  const auto file = write("a.jsonl",
                          "{\"text\": \"NaN \\\"NaN\", \"score\": NaN, \"label\": 1.0}\n"
                          "{\"text\": \"b\", \"more\": [Infinity, {\"x\": -Infinity}], \"label\": 0.0}\n");
  EXPECT_THAT(read_all({.files = {file}, .kind = RecordKind::kLabelled}), ElementsAre("NaN \"NaN = 1", "b = 0"));
  EXPECT_THAT(refusal("{\"text\": NaN}"), HasSubstr("x.jsonl:1: the key \"text\" is a JSON number; want a string"));
  for (const char* label : {"NaN", "-Infinity", "0.25", "1e300"}) {
    EXPECT_THAT(refusal("{\"text\": \"a\", \"label\": " + std::string(label) + "}", {.kind = RecordKind::kLabelled}),
                HasSubstr("x.jsonl:1: the key \"label\" is a JSON number"))
        << label;
  }
  EXPECT_THAT(refusal("{\"text\": \"a\", \"x\": NaN, \"y\": nan}"), HasSubstr("is not JSON from byte 31 of the line"))
      << "the place of the mistake";
}

TEST_F(Jsonl, DamagedLinesAreLeftOutWhateverIsWrongWithThem) {
  const std::string good = "{\"text\": \"good\", \"label\": \"a\"}\n";
  std::vector<std::string> damaged = {R"({"text": null, "label": "a"})",
                                      R"({"label": "a"})",
                                      R"({"text": "half \ud83d", "label": "a"})",
                                      "{\"text\": \"caf\xe9\", \"label\": \"a\"}",
                                      R"({"text": "a", "label": 1.5})",
                                      R"({"text": "a", "label": "b"})",
                                      "[1, 2]",
                                      R"({"text": "cut)",
                                      R"({"text": "a", "label": "a", "n": 1e999})"};
  const auto check = [&](std::int64_t part_bytes) {
    std::string text = good;
    for (const auto& line : damaged) text += line + "\n" + good;
    std::vector<std::string> told;
    JsonlOptions options{
        .files = {write("a.jsonl", text)}, .kind = RecordKind::kLabelled, .labels = {"a"}, .part_bytes = part_bytes};
    options.on_damaged = [&](const auto& damage) { told.push_back(damage()); };
    EXPECT_EQ(read_all(options), std::vector<std::string>(damaged.size() + 1, "good = a"));
    ASSERT_EQ(told.size(), damaged.size());
    for (std::size_t i = 0; i < told.size(); ++i)
      EXPECT_THAT(told[i], HasSubstr("a.jsonl:" + std::to_string(2 * i + 2) + ": ")) << damaged[i].substr(0, 60);
  };
  check(1 << 20);
  check(7);
  damaged = {"{\"text\": \"" + std::string(65 << 20, 'x') + "\"}", "no JSON"};
  check(1 << 20);
  check(std::int64_t{1} << 30);
}

TEST_F(Jsonl, DamagedLinesGiveNoLabelsAndAreToldOnce) {
  const auto file = write("a.jsonl",
                          "{\"text\": \"x\", \"label\": \"b\"}\nno JSON\n{\"text\": 1, \"label\": \"c\"}\n"
                          "{\"text\": \"y\", \"label\": \"a\"}\n");
  int told = 0;
  JsonlOptions options{.files = {file}, .kind = RecordKind::kLabelled};
  options.on_damaged = [&](const auto&) { ++told; };
  EXPECT_THAT(read_all(options), ElementsAre("x = b", "y = a"));
  EXPECT_EQ(told, 2);
  EXPECT_THAT(open_jsonl(options).labels, ElementsAre("a", "b")) << "no record has the label c";
}

// Windows' editors save files so: a byte order mark, CRLF, and no end of the last line. U+2028 ends no line.
TEST_F(Jsonl, AByteOrderMarkAndLineEndsOfOtherSystemsAreNoContent) {
  const auto file = write("a.jsonl",
                          "\xEF\xBB\xBF{\"text\": \"a\"}\r\n{\"text\": \"b\xE2\x80\xA8"
                          "c\"}\r\n{\"text\": \"d\"}");
  EXPECT_THAT(read_all({.files = {file}}), ElementsAre("a",
                                                       "b\xE2\x80\xA8"
                                                       "c",
                                                       "d"));
}

TEST_F(Jsonl, WhatIsNoFileOfLinesIsNamed) {
  EXPECT_THAT(refusal("\x1f\x8b\x08rest"), HasSubstr("x.jsonl: is packed with gzip; unpack it first"));
  EXPECT_THAT(refusal_of({.files = {folder_ / "none"}}), HasSubstr("none: cannot be opened"));
  EXPECT_THAT(refusal_of({.files = {folder_.path()}}), HasSubstr("is not a regular file"));
  EXPECT_THAT(refusal_of({}), HasSubstr("no file is named"));
  EXPECT_THAT(refusal("{}", {.part_bytes = 0}), HasSubstr("part bytes = 0: want 1 to"));
  EXPECT_THAT(refusal("{}", {.kind = RecordKind::kLabelled, .labels = {"a", "a"}}), HasSubstr("\"a\" is named twice"));
  EXPECT_THAT(refusal("{\"text\": \"" + std::string(65 << 20, 'x') + "\"}"),
              HasSubstr("x.jsonl:1: the line has more than 64 MiB"));
}

TEST_F(Jsonl, DeepNestingIsReadWithoutDeepStacks) {
  EXPECT_EQ(refusal("{\"text\": \"a\", \"deep\": " + std::string(200'000, '[') + std::string(200'000, ']') + "}"),
            "read");
}

}  // namespace
}  // namespace data::prepare
