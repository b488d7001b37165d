// Goal: options are read as sbatch and srun read them.
// Method: tables. The splitting of lines is what sbatch 22.05 shows with -vv.
#include "slurm/option_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slurm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Words = std::vector<std::string>;

OptionWords sbatch(const Words& words) {
  return read_option_words(words, Reader::kSbatch);
}

TEST(OptionWords, LongAndShortFormsAreTheSame) {
  for (const auto& words : {Words{"--time", "5"}, {"--time=5"}, {"-t", "5"}, {"-t5"}, {"--tim=5"}}) {
    const auto read = sbatch(words);
    ASSERT_EQ(read.options.size(), 1U) << words[0];
    EXPECT_EQ(read.options[0].name, words[0] == "--tim=5" ? "tim" : "time") << "--tim may be --time or --time-min";
    EXPECT_EQ(read.options[0].value, "5");
  }
  const auto several = sbatch({"-HQN", "2", "-n4", "--exclusive", "--nice=7", "--contig"});
  EXPECT_THAT(
      several.options,
      ElementsAre(WrittenOption{"hold", std::nullopt, "-HQN"}, WrittenOption{"quiet", std::nullopt, "-HQN"},
                  WrittenOption{"nodes", "2", "-HQN 2"}, WrittenOption{"ntasks", "4", "-n4"},
                  WrittenOption{"exclusive", std::nullopt, "--exclusive"}, WrittenOption{"nice", "7", "--nice=7"},
                  WrittenOption{"contiguous", std::nullopt, "--contig"}));
  EXPECT_THAT(several.problems, IsEmpty());
}

TEST(OptionWords, WhatIsWrongIsSaid) {
  EXPECT_THAT(sbatch({"--time"}).problems, ElementsAre("--time: want a value"));
  EXPECT_THAT(sbatch({"-N"}).problems, ElementsAre("-N: want a value"));
  EXPECT_THAT(sbatch({"-y"}).problems, ElementsAre("-y: there is no option -y"));
  EXPECT_THAT(sbatch({"--hold=1"}).problems, ElementsAre("--hold=1: want no value"));
  EXPECT_THAT(sbatch({"stray", "--new-option", "x"}).others, ElementsAre("stray"));
  EXPECT_EQ(sbatch({"--new-option", "x"}).options[0].value, "x");
}

TEST(OptionWords, SrunEndsItsOptionsAtTheProgram) {
  const auto read = read_option_words({"-n", "2", "-l", "--mpi=pmix", "python", "-n", "3"}, Reader::kSrun);
  EXPECT_THAT(read.others, ElementsAre("python", "-n", "3"));
  ASSERT_EQ(read.options.size(), 3U);
  EXPECT_EQ(read.options[1].name, "label");
  EXPECT_THAT(read_option_words({"-W", "0", "a"}, Reader::kSrun).others, ElementsAre("a"));
  EXPECT_THAT(sbatch({"-W", "0"}).others, ElementsAre("0"));
}

TEST(OptionWords, ALineIsSplitAsSbatchSplitsIt) {
  EXPECT_THAT(words_of_line(" --a=1  -b 'x y'\t\"z\\\"w\" # --c").words, ElementsAre("--a=1", "-b", "x y", "z\"w"));
  EXPECT_THAT(words_of_line(" a\\ b \"c\\ d\" e\\#f g#h").words, ElementsAre("a", "b", "c d", "e#f", "g"));
  EXPECT_THAT(words_of_line("").words, IsEmpty());
  EXPECT_THAT(words_of_line(" -n 1 \\").words, ElementsAre("-n", "1")) << "a line does not go on in the next one";
  EXPECT_EQ(words_of_line(" --comment=\"x").problem, "the quote \" does not end on its line; close it there");
}

}  // namespace
}  // namespace slurm
