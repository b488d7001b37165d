#include "cli/cli_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/cli_command.h"
#include "spec/jobfile/job_keys.h"

namespace cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Text, IsCutByCharactersAndCannotMoveTheCursor) {
  EXPECT_EQ(cut("abc", 3), "abc");
  EXPECT_EQ(cut("abcdef", 5), "ab...");
  EXPECT_EQ(cut("äöüäöü", 5), "äö...");
  EXPECT_EQ(cut("a\rb\x1b[2Jc", 20), "a b [2Jc");
}

/// The text that reaches a terminal of these pieces of one line.
std::string passed(const std::vector<std::string>& pieces) {
  TerminalText text;
  std::string out;
  for (const auto& piece : pieces) out += text.pass(piece);
  return out;
}

TEST(TerminalText, KeepsColoursAndRemovesAllElseThatActsOnATerminal) {
  EXPECT_EQ(passed({"\x1b[1;38;5;196mred\x1b[0m \x1b[4:3mwavy\x1b[m"}),
            "\x1b[1;38;5;196mred\x1b[0m \x1b[4mwavy\x1b[0m");
  EXPECT_EQ(passed({"50%|##  |\r51%|##  |\tä → 你"}), "50%|##  |\r51%|##  |\tä → 你");
  const std::string hostile[] = {
      "\x1b]0;title\a",
      "\x1b]52;c;ZXZpbA==\x1b\\",   // the clipboard
      "\x1b]8;;http://evil\x1b\\",  // a link
      "\x1b[2J",
      "\x1b[10A",
      "\x1b[?1049h",
      "\x1b[>0m",  // sets how keys are sent, and ends with m
      "\x1b[6n",   // asks the terminal to type
      "\x1b"
      "c",
      "\x1b"
      "(0",
      "\x1bP+q544e\x1b\\",
      "\x1b_Gi=1\x1b\\",
      "\x07",
      "\b\b",
      "\x0e",
      "\x7f",
      "\x1b\x1b[2J",
  };
  for (const auto& bytes : hostile) EXPECT_EQ(passed({"a" + bytes + "b"}), "ab") << testing::PrintToString(bytes);
  EXPECT_EQ(passed({"a\xc2\x9b"
                    "2Jb"}),
            "a 2Jb")
      << "a control character of 8 bits";
  EXPECT_EQ(passed({"a\x9b"
                    "2Jb"}),
            "a?2Jb");
  EXPECT_EQ(passed({"a\u202eb"}), "a b") << "the direction of writing";
}

TEST(TerminalText, OfStylesKeepsColoursBoldUnderlinesAndWhatResetsThem) {
  const std::pair<const char*, const char*> cases[] = {
      {"31", "31"},
      {"1;4;97;104", "1;4;97;104"},
      {"39;49;22;24", "39;49;22;24"},
      {"", "0"},
      {";31", "0;31"},
      {"031", "31"},
      {"8", ""},      // conceal
      {"5;6;7", ""},  // blink, blink, swap
      {"1;8;31", "1;31"},
      {"10;11;51;52;73", ""},
      {"38;5;8", "38;5;8"},  // 8 is a colour here
      {"48;2;8;5;6;1", "48;2;8;5;6;1"},
      {"38;5;8;8", "38;5;8"},
      {"38;2;1;2;3;5", "38;2;1;2;3"},
      {"38:5:8", "38;5;8"},
      {"38:2:1:2:3", "38;2;1;2;3"},
      {"48:2::1:2:3", "48;2;1;2;3"},
      {"58;5;8;1", "1"},  // the colour of underlines, as a whole
      {"58:2::8:5:6;1", "1"},
      {"4:0", "24"},
      {"4:3:1", ""},
      {"38;5", ""},  // cut off
      {"38;2;8;5", ""},
      {"38;5;256", ""},
      {"38;8", ""},
      {"1;38;7;8", "1"},
      {"38;5:8", ""},
      {"99999999999", ""},
      {"1;99999999999;31", "1"},
  };
  for (const auto& [given, kept] : cases) {
    const auto shown = *kept == '\0' ? std::string() : "\x1b[" + std::string(kept) + "m";
    EXPECT_EQ(passed({"a\x1b[" + std::string(given) + "mb"}), "a" + shown + "b") << given;
  }
}

TEST(TerminalText, MayBeCutAnywhere) {
  const std::string text = "ä\x1b[31m→\x1b]0;t\x1b\\\x1b[2J你\x1b[0m!";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(passed({text.substr(0, cut), text.substr(cut)}), "ä\x1b[31m→你\x1b[0m!") << cut;
  }
}

TEST(TerminalText, ASequenceThatNeverEndsEndsWithItsLineAndOpenColoursAreReset) {
  TerminalText text;
  EXPECT_EQ(text.pass("a\x1b]0;never"), "a");
  text.end_line();
  EXPECT_EQ(text.pass("next \x1b[31mred"), "next \x1b[31mred");
  EXPECT_EQ(text.reset(), "\x1b[0m");
  EXPECT_EQ(text.reset(), "");
  for (const auto* ended : {"\x1b[31mred\x1b[0m", "\x1b[8mred", "\x1b[39m", "\x1b[31;0m"}) {
    text.pass(ended);
    EXPECT_EQ(text.reset(), "") << ended;
  }
  text.pass("\x1b[0;31mred\x1b[24m");
  EXPECT_EQ(text.reset(), "\x1b[0m");
}

TEST(Text, IsWrappedAtSpaces) {
  EXPECT_THAT(wrapped("one two three", 7), ElementsAre("one two", "three"));
  EXPECT_THAT(wrapped("abcdefghij", 4), ElementsAre("abcd", "efgh", "ij"));
  EXPECT_THAT(wrapped("", 4), ElementsAre(""));
}

TEST(Text, NumbersAreShort) {
  EXPECT_EQ(duration_text(312), "312ms");
  EXPECT_EQ(duration_text(192'500), "3m12s");
  EXPECT_EQ(duration_text(187'250'000), "2d4h");
  EXPECT_EQ(number_text(2.87123), "2.871");
  EXPECT_EQ(number_text(21034.5), "21034");
  EXPECT_EQ(number_text(0.0003), "0.0003");
}

TEST(Text, TimesAreReadAndShownInUtc) {
  EXPECT_EQ(time_ms("1970-01-02T00:00:01.500Z"), 86'401'500);
  EXPECT_EQ(time_ms(""), -1);
  EXPECT_EQ(time_text("2026-11-20T19:48:55.123Z"), "2026-11-20 19:48:55");
  EXPECT_EQ(time_text(""), "-");
  EXPECT_EQ(span_text("2026-11-20T19:48:55.000Z", "2026-11-20T19:52:07.000Z"), "3m12s");
}

TEST(FieldHelp, NamesEveryKeyAndFits80Columns) {
  const auto help = key_help(80);
  for (const auto& field : jobfile::job_keys()) {
    const auto dot = field.name.rfind('.');
    EXPECT_THAT(help, HasSubstr(std::string(field.name.substr(dot == std::string_view::npos ? 0 : dot + 1))));
  }
  for (std::size_t at = 0; at < help.size();) {
    const auto end = help.find('\n', at);
    EXPECT_LE(width_of(help.substr(at, end - at)), 80U) << help.substr(at, end - at);
    at = end + 1;
  }
}

}  // namespace
}  // namespace cli
