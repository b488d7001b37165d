#include "data/prepare/text/man_pages.h"

#include <gmock/gmock.h>

#include <random>

namespace data::prepare {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Roff, KeepsTheWordsOfAManPage) {
  const auto text = roff_to_text(R"(.\" A comment
.TH LS 1 "May 2026" "tools" "User Commands"
.SH NAME
ls \- list directory contents
.SH SYNOPSIS
.B ls
[\fI\,OPTION\/\fR]... [\fI\,FILE\/\fR]...
.TP
\fB\-a\fR, \fB\-\-all\fR
do not ignore entries
.BR sort (1),
and \(lqmore\(rq
)");
  EXPECT_EQ(text,
            "NAME\nls - list directory contents\n\nSYNOPSIS\nls [OPTION]... [FILE]...\n\n-a, --all do not ignore "
            "entries sort(1), and \"more\"\n\n");
}

TEST(Roff, KeepsTheWordsOfAnMdocPage) {
  const auto text = roff_to_text(".Dd May 1, 2026\n.Sh NAME\n.Nm tool\n.Nd does it\n.Op Fl v Ar file\n");
  EXPECT_THAT(text, HasSubstr("NAME\ntool -  does it"));
  EXPECT_THAT(text, HasSubstr("-v file"));
}

TEST(Roff, KeepsExamplesAsTheyAre) {
  EXPECT_THAT(roff_to_text(".nf\nint  x;\n  y();\n.fi\n"), HasSubstr("int  x;\n  y();\n"));
}

TEST(Roff, DropsMacroDefinitions) {
  EXPECT_THAT(roff_to_text(".de XX\nsecret\n..\nseen\n"),
              ::testing::AllOf(HasSubstr("seen"), Not(HasSubstr("secret"))));
}

TEST(Roff, APageThatOnlyIncludesAnotherIsEmpty) {
  EXPECT_EQ(roff_to_text(".so man1/other.1\n"), "");
}

TEST(Roff, GarbageIsHarmless) {
  std::mt19937 random(4);
  const std::string alphabet = "\\.\"'([f*shTP\n ab";
  for (int i = 0; i < 5000; ++i) {
    std::string page;
    for (int k = 0; k < 60; ++k) page += alphabet[random() % alphabet.size()];
    roff_to_text(page);
  }
}

}  // namespace
}  // namespace data::prepare
