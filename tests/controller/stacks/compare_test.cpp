// Goal: the rank that hangs is told from those that wait for it.
#include "controller/stacks/compare.h"

#include <gmock/gmock.h>

namespace stacks {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Place python(std::vector<std::string> frames) {
  return {Kind::kPython, std::move(frames)};
}

const Place kReduces = python({"<module> (t.py:9)", "train (t.py:5)", "all_reduce (c10d.py:70)", "wait (c10d.py:3)"});
const Place kLoads = python({"<module> (t.py:9)", "train (t.py:4)", "next (loader.py:8)"});

TEST(Compare, RanksPartWhereTheirFramesDoFromTheOutside) {
  const auto groups = compare({{0, kReduces}, {1, kLoads}, {2, kReduces}, {3, kReduces}});
  EXPECT_THAT(groups, ElementsAre(Group{{0, 2, 3}, "train (t.py:5)", "wait (c10d.py:3)"},
                                  Group{{1}, "train (t.py:4)", "next (loader.py:8)"}));
  EXPECT_EQ(summary_of(groups),
            "rank 1 stands at train (t.py:4), in next (loader.py:8); ranks 0, 2 and 3 stand at train (t.py:5), in wait "
            "(c10d.py:3)");
}

TEST(Compare, OfTwoRanksEachIsNamed) {
  EXPECT_EQ(
      summary_of(compare({{0, kLoads}, {1, kReduces}})),
      "rank 1 stands at train (t.py:5), in wait (c10d.py:3); rank 0 stands at train (t.py:4), in next (loader.py:8)");
}

TEST(Compare, RanksAtOnePlaceAreOneGroup) {
  const auto groups = compare({{0, kReduces}, {1, kReduces}});
  EXPECT_THAT(groups, ElementsAre(Group{{0, 1}, "wait (c10d.py:3)", "wait (c10d.py:3)"}));
  EXPECT_EQ(summary_of(groups), "all 2 ranks stand at wait (c10d.py:3)");
  EXPECT_EQ(summary_of(compare({{0, kLoads}})), "rank 0 stands at next (loader.py:8)");
}

TEST(Compare, AStackThatEndsAboveTheOthersIsAPlaceOfItsOwn) {
  const auto above = python({"<module> (t.py:9)", "train (t.py:5)"});
  EXPECT_THAT(compare({{0, kReduces}, {1, above}, {2, kReduces}}),
              ElementsAre(Group{{0, 2}, "all_reduce (c10d.py:70)", "wait (c10d.py:3)"},
                          Group{{1}, "train (t.py:5)", "train (t.py:5)"}));
}

TEST(Compare, WhatOnlyTheKernelTellsIsNoFrame) {
  const Place stopped{Kind::kKernel, {"is stopped by a signal"}};
  const auto groups = compare({{0, kReduces}, {1, stopped}, {2, kReduces}});
  EXPECT_THAT(groups, ElementsAre(Group{{0, 2}, "<module> (t.py:9)", "wait (c10d.py:3)"},
                                  Group{{1}, "is stopped by a signal", "is stopped by a signal"}));
}

TEST(Compare, RanksWithoutFramesAreLeftOut) {
  EXPECT_THAT(compare({{0, {}}, {1, {}}}), IsEmpty());
  EXPECT_THAT(compare({{0, {}}, {1, kLoads}}), ElementsAre(Group{{1}, "next (loader.py:8)", "next (loader.py:8)"}));
  EXPECT_EQ(summary_of({}), "");
}

TEST(Compare, ManyPlacesAndManyRanksAreCounted) {
  std::map<std::uint32_t, Place> ranks;
  for (std::uint32_t rank = 0; rank < 20; ++rank) ranks.emplace(rank, kReduces);
  for (std::uint32_t rank = 20; rank < 26; ++rank) {
    ranks.emplace(rank, python({"<module> (t.py:" + std::to_string(rank) + ")"}));
  }
  const auto summary = summary_of(compare(ranks));
  EXPECT_THAT(summary, testing::StartsWith("rank 25 stands at <module> (t.py:25); rank 24"));
  EXPECT_THAT(summary, testing::EndsWith("; 2 more places; 20 ranks stand at <module> (t.py:9), in wait (c10d.py:3)"));
}

}  // namespace
}  // namespace stacks
