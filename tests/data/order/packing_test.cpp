#include "data/order/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>

namespace data::order {
namespace {

using Lengths = std::vector<std::int32_t>;

/// Many short documents and few long ones, up to `most` tokens, as texts are. One in ten is empty.
Lengths random_lengths(std::uint64_t seed, std::size_t records, double most) {
  Random random(seed, 0);
  Lengths lengths(records);
  for (auto& length : lengths) {
    const double draw = random.unit();
    length = random.below(10) == 0 ? 0 : 1 + static_cast<std::int32_t>(draw * draw * draw * most);
  }
  return lengths;
}

std::int64_t tokens_of(const PackedRow& row) {
  std::int64_t tokens = 0;
  for (const auto& piece : row.pieces) tokens += piece.length;
  return tokens;
}

double filled(const std::vector<PackedRow>& rows, std::int64_t length) {
  std::int64_t tokens = 0;
  for (const auto& row : rows) tokens += tokens_of(row);
  return static_cast<double>(tokens) / static_cast<double>(static_cast<std::int64_t>(rows.size()) * length);
}

TEST(Packing, LosesAndDoublesNoToken) {
  for (const std::int64_t length : {1, 2, 17, 128, 5000}) {
    const auto lengths = random_lengths(static_cast<std::uint64_t>(length), 500, 700);
    std::map<std::int64_t, std::int64_t> taken;  // tokens by record
    std::map<std::int64_t, std::vector<bool>> seen;
    for (const auto& row : pack(1, lengths, length)) {
      EXPECT_FALSE(row.pieces.empty());
      EXPECT_LE(tokens_of(row), length);
      for (const auto& [record, begin, tokens] : row.pieces) {
        EXPECT_GT(tokens, 0);
        auto& tokens_seen = seen[record];
        tokens_seen.resize(static_cast<std::size_t>(lengths[static_cast<std::size_t>(record)]));
        for (auto token = begin; token < begin + tokens; ++token) {
          EXPECT_FALSE(tokens_seen.at(static_cast<std::size_t>(token))) << record << " " << token;
          tokens_seen.at(static_cast<std::size_t>(token)) = true;
          ++taken[record];
        }
      }
    }
    for (std::size_t record = 0; record < lengths.size(); ++record) {
      EXPECT_EQ(taken[static_cast<std::int64_t>(record)], lengths[record]);
    }
  }
}

// Goal: rows are nearly full, so that a step trains on tokens and not on padding.
TEST(Packing, FillsRows) {
  const auto short_ones = pack(1, random_lengths(1, 20000, 600), 1024);
  const auto like_rows = pack(1, random_lengths(2, 20000, 1500), 1024);
  RecordProperty("filled_short", std::to_string(filled(short_ones, 1024)));
  RecordProperty("filled_like_rows", std::to_string(filled(like_rows, 1024)));
  EXPECT_GT(filled(short_ones, 1024), 0.98);
  EXPECT_GT(filled(like_rows, 1024), 0.95);
}

TEST(Packing, CutsALongDocumentAndKeepsItsRest) {
  const auto rows = pack(0, Lengths{10}, 4);
  ASSERT_EQ(rows.size(), 3);
  EXPECT_EQ(rows[0], (PackedRow{{{0, 0, 4}}}));
  EXPECT_EQ(rows[1], (PackedRow{{{0, 4, 4}}}));
  EXPECT_EQ(rows[2], (PackedRow{{{0, 8, 2}}}));
}

// No two documents of 6 tokens fit into a row of 10, so each opens a row. The one of 4 joins the oldest that is open.
TEST(Packing, APieceJoinsTheFirstOpenRowWithRoom) {
  constexpr std::int64_t kRecords = 200, kSmall = 0;
  Lengths lengths(kRecords, 6);
  lengths[kSmall] = 4;
  std::int64_t late = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Order order({.samples = kRecords, .seed = seed});
    std::int64_t opened = 0;
    while (order.at(opened) != kSmall) ++opened;
    ASSERT_GT(opened, 0);
    const auto oldest = std::max<std::int64_t>(0, opened - static_cast<std::int64_t>(kOpenRows));
    const auto rows = pack(seed, lengths, 10);
    ASSERT_EQ(rows.size(), kRecords - 1);
    EXPECT_EQ(rows[static_cast<std::size_t>(oldest)], (PackedRow{{{order.at(oldest), 0, 6}, {kSmall, 0, 4}}})) << seed;
    late += oldest > 0 ? 1 : 0;
  }
  EXPECT_GT(late, 5) << "some must come when the first rows are closed";
}

TEST(Packing, DependsOnItsArgumentsAlone) {
  const auto lengths = random_lengths(9, 1000, 300);
  EXPECT_EQ(pack(4, lengths, 256), pack(4, lengths, 256));
  EXPECT_NE(pack(4, lengths, 256), pack(5, lengths, 256)) << "the seed shuffles documents";
}

TEST(Packing, OfNothingIsEmpty) {
  EXPECT_TRUE(pack(0, Lengths{}, 8).empty());
  EXPECT_TRUE(pack(0, Lengths{0, 0}, 8).empty());
}

TEST(Packing, RefusesLengthsOutsideTheirRange) {
  const auto message_of = [](const Lengths& lengths, std::int64_t length) -> std::string {
    try {
      pack(0, lengths, length);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message_of({1}, 0), "packing: rows of 0 tokens; a row needs at least 1");
  EXPECT_EQ(message_of({1, -2}, 8), "packing: record 1 has a length of -2 tokens; it must be at least 0");
}

}  // namespace
}  // namespace data::order
