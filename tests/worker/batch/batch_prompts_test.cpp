// Goal: all ranks ask their models equally often, and each record once.
#include "worker/batch/pairs.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "base/usage_error.h"
#include "tests/worker/batch_folders.h"

namespace worker {
namespace {

using testing::folder_of_texts;
using ::testing::HasSubstr;
using testing::Ids;
using testing::message_of;
using testing::Numbers;
using testing::PreparedFolder;

void with_ends(data::format::Description& description) {
  description.prefix = {1};
  description.suffix = {2};
  description.eos = 2;
}

TEST(Prompts, AreDealtOutEvenlyWithFillingThatDoesNotCount) {
  const auto folder = folder_of_texts({{10, 11}, {12, 13}, {14, 15}, {16, 17}, {18, 19}}, with_ends);
  const auto split = folder.open();
  for (const int world_size : {1, 2, 3, 7}) {
    for (const std::int64_t samples : {3, 5, 64}) {
      Numbers counted;
      const auto records = std::min<std::int64_t>(samples, 5);
      for (int rank = 0; rank < world_size; ++rank) {
        const auto prompts = prompts_of(*split, rank, world_size, {.samples = samples, .most = 8});
        EXPECT_EQ(prompts.size(), (records + world_size - 1) / world_size);
        for (const Prompt& prompt : prompts) {
          EXPECT_EQ(prompt.ids, (Numbers{1, 10 + 2 * prompt.record})) << "prefix, and half of the record, no suffix";
          EXPECT_EQ(prompt.rest, Numbers{11 + 2 * prompt.record});
          if (prompt.counts) counted.push_back(prompt.record);
        }
      }
      std::sort(counted.begin(), counted.end());
      Numbers want(static_cast<std::size_t>(records));
      std::iota(want.begin(), want.end(), 0);
      EXPECT_EQ(counted, want) << world_size << " ranks, " << samples << " samples";
    }
  }
}

TEST(Prompts, EndWhereTheRecipeCuts) {
  const auto folder = folder_of_texts({{10, 11, 12, 13, 14}}, with_ends);
  const auto prompt = [&](std::int64_t cut, std::int64_t most) {
    return prompts_of(*folder.open(), 0, 1,
                      {.most = most,
                       .cut =
                           [&](std::int64_t record, std::span<const std::uint32_t> ids) {
                             EXPECT_EQ(record, 0);
                             EXPECT_EQ(Ids(ids.begin(), ids.end()), (Ids{10, 11, 12, 13, 14}));
                             return cut;
                           }})
        .front();
  };
  EXPECT_EQ(prompt(3, 9).ids, (Numbers{1, 10, 11, 12}));
  EXPECT_EQ(prompt(3, 9).rest, (Numbers{13, 14}));
  EXPECT_EQ(prompt(3, 3).ids, (Numbers{1, 10, 11})) << "no longer than allowed";
  EXPECT_EQ(prompt(3, 3).rest, (Numbers{12, 13, 14}));
  EXPECT_EQ(prompt(0, 9).ids, Numbers{1});
  EXPECT_EQ(message_of<std::logic_error>([&] { prompt(6, 9); }), "a prompt of 6 tokens of a record of 5");
}

TEST(Prompts, HaveAtLeastOneToken) {
  const auto folder = folder_of_texts({{}, {10}}, [](data::format::Description& description) { description.eos = 7; });
  const auto prompts = prompts_of(*folder.open(), 0, 1, {.most = 4});
  EXPECT_EQ(prompts[0].ids, Numbers{7});
  EXPECT_EQ(prompts[1].ids, Numbers{7}) << "half of one token is none";
  EXPECT_EQ(prompts[1].rest, Numbers{10});
}

TEST(Prompts, OfPairsAreTheirInputs) {
  const PreparedFolder folder(data::format::Kind::kPairs, {{"train", {{{{10, 11, 12, 13}, {20, 21}}}}}}, with_ends);
  const auto prompts = prompts_of(*folder.open(), 0, 1, {.most = 5});
  EXPECT_EQ(prompts.front().ids, (Numbers{1, 10, 11, 12, 2}));
  EXPECT_EQ(prompts.front().rest, (Numbers{20, 21}));
}

TEST(Prompts, OfDataWithoutRecordsAreNone) {
  const auto folder = folder_of_texts({});
  EXPECT_TRUE(prompts_of(*folder.open(), 0, 2, {.most = 4}).empty());
  EXPECT_THAT(message_of<base::UsageError>([&] { prompts_of(*folder.open(), 0, 2, {.most = 0}); }),
              HasSubstr("data.sequence_length = 0"));
  const PreparedFolder labelled(data::format::Kind::kLabelled, {{"train", {{{{5}}, 0}}}},
                                [](data::format::Description& description) { description.labels = {"a"}; });
  EXPECT_EQ(message_of<std::logic_error>([&] { prompts_of(*labelled.open(), 0, 1, {.most = 4}); }),
            "prompts of data of kind labelled");
}

}  // namespace
}  // namespace worker
