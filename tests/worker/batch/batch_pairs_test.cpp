// Goal: an encoder-decoder gets whole inputs and targets, those of a data set and those of span corruption.
#include "worker/batch/pairs.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/usage_error.h"
#include "data/order/order.h"
#include "tests/worker/batch_folders.h"

namespace worker {
namespace {

using testing::collated;
using ::testing::ElementsAre;
using testing::folder_of_texts;
using ::testing::HasSubstr;
using testing::Ids;
using testing::message_of;
using testing::Numbers;
using testing::PreparedFolder;
using testing::Records;
using testing::rows_in;

constexpr std::int64_t kT5Pad = 0, kT5Eos = 1;

void as_t5(data::format::Description& description) {
  description.pad = kT5Pad;
  description.eos = kT5Eos;
  description.suffix = {kT5Eos};
}

PreparedFolder folder_of_pairs(const Records& records) {
  return PreparedFolder(data::format::Kind::kPairs, {{"train", records}}, as_t5);
}

TEST(PairBatches, ArePaddedToTheirLongestAndMasked) {
  const auto folder = folder_of_pairs({{{{10, 11, 12}, {20}}}, {{{13}, {21, 22}}}, {{{}, {}}}});
  const auto source = pairs_of(folder.open(), {.input_length = 64, .target_length = 32});
  const Batch batch = collated(*source, {1, 0, 2});
  const Numbers five_ignored(5, data::order::kNoTarget);
  EXPECT_THAT(rows_in(batch.at("input_ids")),
              ElementsAre(Numbers{13, 1, 0, 0, 0, 0, 0, 0}, Numbers{10, 11, 12, 1, 0, 0, 0, 0},
                          Numbers{1, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_THAT(
      rows_in(batch.at("attention_mask")),
      ElementsAre(Numbers{1, 1, 0, 0, 0, 0, 0, 0}, Numbers{1, 1, 1, 1, 0, 0, 0, 0}, Numbers{1, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(batch.at("attention_mask").scalar_type(), at::kBool);
  EXPECT_THAT(rows_in(batch.at("targets")), ElementsAre(Numbers{21, 22, 1, -100, -100, -100, -100, -100},
                                                        Numbers{20, 1, -100, -100, -100, -100, -100, -100},
                                                        Numbers{1, -100, -100, -100, -100, -100, -100, -100}));
  EXPECT_EQ(batch.samples, 3);
  EXPECT_EQ(batch.weight, 3 + 2 + 1);
  EXPECT_EQ(batch.tokens, (2 + 4 + 1) + (3 + 2 + 1));
  EXPECT_EQ(source->length(0), 4 + 2);
}

TEST(PairBatches, LongTextsLoseTheirLastTokensButNotTheirEnd) {
  Ids input(30), target(30);
  std::iota(input.begin(), input.end(), 100);
  std::iota(target.begin(), target.end(), 200);
  const auto folder = folder_of_pairs({{{input, target}}});
  const auto source = pairs_of(folder.open(), {.input_length = 12, .target_length = 5});
  const Batch batch = collated(*source, {0});
  EXPECT_THAT(rows_in(batch.at("input_ids")).front(),
              ElementsAre(100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, kT5Eos))
      << "16 would exceed the length";
  EXPECT_THAT(rows_in(batch.at("targets")).front(), ElementsAre(200, 201, 202, 203, kT5Eos));
  EXPECT_EQ(batch.weight, 5);
  EXPECT_EQ(source->length(0), 17);
}

TEST(PairBatches, TargetsEndWhereTheTokenizerAddsNoEnd) {
  const PreparedFolder folder(data::format::Kind::kPairs, {{"train", {{{{10, 11}, {20, 21, 22}}}}}},
                              [](data::format::Description& description) {
                                as_t5(description);
                                description.suffix.clear();
                              });
  const auto source = pairs_of(folder.open(), {.input_length = 8, .target_length = 3});
  const Batch batch = collated(*source, {0});
  EXPECT_THAT(rows_in(batch.at("input_ids")).front(), ElementsAre(10, 11, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(rows_in(batch.at("targets")).front(), ElementsAre(20, 21, kT5Eos));
  EXPECT_EQ(source->length(0), 2 + 3);
}

TEST(PairBatches, RefuseLengthsWithoutRoomAndDataWithoutPairs) {
  const auto folder = folder_of_pairs({{{{10}, {20}}}});
  EXPECT_EQ(message_of<base::UsageError>([&] { pairs_of(folder.open(), {.input_length = 1, .target_length = 2}); }),
            "data.sequence_length = 1: the tokenizer puts 1 special tokens around a text, so a row needs at least 2 "
            "tokens; give a longer one");
  EXPECT_THAT(message_of<base::UsageError>([&] { pairs_of(folder.open(), {.input_length = 2, .target_length = 0}); }),
              HasSubstr("data.target_length = 0"));
  const auto empty = folder_of_pairs({});
  EXPECT_THAT(message_of<base::UsageError>([&] { pairs_of(empty.open(), {.input_length = 8, .target_length = 8}); }),
              HasSubstr("no pair of texts"));
}

const data::order::SpanOptions kSpans{.first_sentinel = 999};
const data::order::SpanOptions kShortSpans{.density = 0.3, .mean_length = 1.5, .first_sentinel = 999};

bool is_sentinel(std::int64_t token) {
  return token > 999 - 100;
}

/// The text of which a row was made: each sentinel of the input is replaced by what follows it in the target.
Numbers restored(const Numbers& input, const Numbers& target) {
  Numbers out;
  for (const auto token : input) {
    if (token == kT5Eos) break;
    if (!is_sentinel(token)) {
      out.push_back(token);
      continue;
    }
    auto at = std::find(target.begin(), target.end(), token);
    for (; at != target.end() && *++at != kT5Eos && !is_sentinel(*at);) out.push_back(*at);
  }
  return out;
}

TEST(SpanBatches, RestoreEachTokenOfTheTextOnceInEachEpoch) {
  std::vector<Ids> documents;
  Numbers all;
  for (const std::size_t size : {57u, 0u, 1u, 2u, 40u, 13u}) {
    documents.emplace_back(size);
    for (auto& id : documents.back()) all.push_back(id = static_cast<std::uint32_t>(10 + all.size()));
  }
  const auto folder = folder_of_texts(documents, as_t5);
  const PairOptions sizes{.input_length = 20, .target_length = 12};
  const auto source = corrupted_spans(folder.open(), kShortSpans, sizes);
  const auto restored_text = [&](std::int64_t epoch) {
    Numbers text;
    for (std::int64_t sample = 0; sample < source->samples(); ++sample) {
      const std::uint64_t draw = sample_draw(1, epoch, sample);
      const Batch batch = source->collate(std::span(&sample, 1), std::span(&draw, 1));
      const auto input = rows_in(batch.at("input_ids")).front(), target = rows_in(batch.at("targets")).front();
      EXPECT_LE(input.size(), sizes.input_length);
      EXPECT_LE(target.size(), sizes.target_length);
      EXPECT_EQ(std::count(input.begin(), input.end(), kT5Eos), 1);
      EXPECT_EQ(std::count(target.begin(), target.end(), kT5Eos), 1);
      EXPECT_EQ(batch.weight,
                std::count_if(target.begin(), target.end(), [](auto id) { return id != data::order::kNoTarget; }));
      EXPECT_EQ(batch.tokens, batch.at("attention_mask").sum().item<std::int64_t>() + batch.weight);
      const auto piece = restored(input, target);
      EXPECT_EQ(source->length(sample), piece.size());
      text.insert(text.end(), piece.begin(), piece.end());
    }
    return text;
  };
  EXPECT_EQ(restored_text(0), all);
  EXPECT_EQ(restored_text(1), all);
  const std::int64_t sample = 0;
  const std::uint64_t first = sample_draw(1, 0, 0), second = sample_draw(1, 1, 0);
  EXPECT_NE(rows_in(source->collate(std::span(&sample, 1), std::span(&first, 1)).at("targets")),
            rows_in(source->collate(std::span(&sample, 1), std::span(&second, 1)).at("targets")))
      << "another epoch cuts other spans out";
}

TEST(SpanBatches, HoldPiecesThatFillTheLengths) {
  const auto folder = folder_of_texts({Ids(2000, 10)}, as_t5);
  const auto source = corrupted_spans(folder.open(), kSpans, {.input_length = 512, .target_length = 114});
  EXPECT_EQ(source->samples(), 4);
  EXPECT_EQ(source->length(0), 568) << "published for T5";
  EXPECT_EQ(source->length(3), 2000 - 3 * 568);
  const Batch batch = collated(*source, {0});
  EXPECT_EQ(batch.at("input_ids").size(1), 512);
  EXPECT_EQ(batch.at("targets").size(1), 114);
  const auto shorter = corrupted_spans(folder.open(), kSpans, {.input_length = 512, .target_length = 20});
  EXPECT_LE(collated(*shorter, {0}).at("targets").size(1), 20);
}

TEST(SpanBatches, RefuseWhatHasNoRoomOrNoTokens) {
  const auto folder = folder_of_texts({{5, 6, 7}}, as_t5);
  const auto message = [&](const data::order::SpanOptions& spans, const PairOptions& sizes) {
    return message_of<base::UsageError>([&] { corrupted_spans(folder.open(), spans, sizes); });
  };
  EXPECT_THAT(message(kSpans, {.input_length = 2, .target_length = 9}), HasSubstr("an input of 2 tokens has no room"));
  EXPECT_THAT(message(kSpans, {.input_length = 9, .target_length = 2}),
              HasSubstr("data.target_length = 2: the target of a text with a span cut out has at least 3 tokens"));
  EXPECT_THAT(message({.density = 1, .first_sentinel = 999}, {.input_length = 9, .target_length = 9}),
              HasSubstr("density is 1.0"));
  const auto empty = folder_of_texts({{}}, as_t5);
  EXPECT_EQ(message_of<base::UsageError>(
                [&] { corrupted_spans(empty.open(), kSpans, {.input_length = 9, .target_length = 9}); }),
            "the data has no token in 1 documents");
}

}  // namespace
}  // namespace worker
