// Goal: rows of a stream and rows of packed documents hold each token of a text once, with the next one as its target.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/usage_error.h"
#include "data/order/order.h"
#include "data/order/random.h"
#include "tests/worker/batch_folders.h"
#include "worker/batch/causal_rows.h"

namespace worker {
namespace {

using testing::collated;
using ::testing::ElementsAre;
using testing::folder_of_texts;
using ::testing::HasSubstr;
using testing::Ids;
using testing::message_of;
using testing::Numbers;
using testing::rows_in;

void as_bytes(data::format::Description& description) {
  description.vocabulary = 257;
  description.eos = 256;
}

/// Documents whose bytes have no pattern.
std::vector<Ids> random_documents(std::size_t count, std::uint64_t longest) {
  data::order::Random random(4, 0);
  std::vector<Ids> out(count);
  for (auto& document : out) {
    document.resize(random.below(longest + 1));
    for (auto& id : document) id = static_cast<std::uint32_t>(random.below(256));
  }
  return out;
}

// Targets are the tokens one later. The last rows are for validation, at least one for a fraction above 0.
TEST(RowsOfAStream, CutAllTokensInTheirOrder) {
  const auto documents = random_documents(40, 30);
  Numbers tokens;
  for (const auto& document : documents) {
    tokens.insert(tokens.end(), document.begin(), document.end());
    tokens.push_back(256);
  }
  const auto folder = folder_of_texts(documents, as_bytes);
  const auto stream = std::make_shared<TokenStream>(folder.open());
  EXPECT_EQ(stream->size(), static_cast<std::int64_t>(tokens.size()));
  for (const std::int64_t length : {1, 7, 16}) {
    for (const double fraction : {0.0, 0.001, 0.3}) {
      const SplitRows rows = split_rows(stream, length, fraction);
      const std::int64_t all = (stream->size() - 1) / length;
      const auto share = static_cast<std::int64_t>(static_cast<double>(all) * fraction);
      const std::int64_t held_out = fraction > 0 ? std::max<std::int64_t>(1, share) : 0;
      ASSERT_EQ(rows.train->samples(), all - held_out);
      ASSERT_EQ(rows.validation ? rows.validation->samples() : 0, held_out);
      for (std::int64_t row = 0; row < all; ++row) {
        const bool trains = row < all - held_out;
        const Batch is = collated(trains ? *rows.train : *rows.validation, {trains ? row : row - (all - held_out)});
        const auto begin = tokens.begin() + row * length;
        ASSERT_EQ(rows_in(is.at("input_ids")).front(), Numbers(begin, begin + length));
        ASSERT_EQ(rows_in(is.at("targets")).front(), Numbers(begin + 1, begin + 1 + length));
      }
    }
  }
}

TEST(RowsOfAStream, WeighWhatTheyHaveOfTargets) {
  const auto folder = folder_of_texts({{1, 2, 3}, {}, {4, 5, 6, 7}}, as_bytes);
  const auto rows = all_rows_of(std::make_shared<TokenStream>(folder.open()), 3, "the split train");
  EXPECT_EQ(rows->samples(), 3);
  EXPECT_EQ(rows->length(0), 3);
  const Batch batch = collated(*rows, {2, 0});
  EXPECT_THAT(rows_in(batch.at("input_ids")), ElementsAre(Numbers{5, 6, 7}, Numbers{1, 2, 3}));
  EXPECT_THAT(rows_in(batch.at("targets")), ElementsAre(Numbers{6, 7, 256}, Numbers{2, 3, 256}));
  EXPECT_EQ(batch.samples, 2);
  EXPECT_EQ(batch.tokens, 6);
  EXPECT_EQ(batch.weight, 6);
  EXPECT_THROW(collated(*rows, {3}), std::out_of_range);
  EXPECT_THROW(collated(*rows, {-1}), std::out_of_range);
}

TEST(RowsOfAStream, HaveTheTokenizersSpecialTokensAndOneEndADocument) {
  const auto with_frame = [](std::vector<std::uint32_t> suffix) {
    const auto folder = folder_of_texts({{10, 11}, {12}}, [&](data::format::Description& description) {
      description.vocabulary = 70'000;  // tokens of four bytes
      description.prefix = {1};
      description.suffix = suffix;
      description.eos = 2;
    });
    const auto stream = std::make_shared<TokenStream>(folder.open());
    Numbers out(static_cast<std::size_t>(stream->size()));
    stream->copy(0, stream->size(), out.data());
    return out;
  };
  EXPECT_EQ(with_frame({}), (Numbers{1, 10, 11, 2, 1, 12, 2}));
  EXPECT_EQ(with_frame({2}), (Numbers{1, 10, 11, 2, 1, 12, 2})) << "the suffix is the end already";
  EXPECT_EQ(with_frame({3}), (Numbers{1, 10, 11, 3, 2, 1, 12, 3, 2}));
}

TEST(RowsOfAStream, TooFewTokensAreRefused) {
  const auto folder = folder_of_texts({{1, 2, 3}}, as_bytes);
  const auto stream = std::make_shared<TokenStream>(folder.open());
  EXPECT_EQ(message_of<base::UsageError>([&] { all_rows_of(stream, 4, "the split train of /data/pages"); }),
            "data.sequence_length = 4: the split train of /data/pages has only 4 tokens, too few for one row; prepare "
            "more text, or give a shorter sequence");
  EXPECT_EQ(all_rows_of(stream, 3, "")->samples(), 1);
  EXPECT_THAT(message_of<base::UsageError>([&] { split_rows(stream, 3, 0.1); }),
              HasSubstr("data.sequence_length = 3: the text has only 4 tokens, too few for one training sample"));
  EXPECT_THAT(message_of<base::UsageError>([&] { all_rows_of(stream, 0, ""); }), HasSubstr("data.sequence_length = 0"));
  const auto empty = folder_of_texts({}, as_bytes);
  EXPECT_THAT(message_of<base::UsageError>([&] { all_rows_of(std::make_shared<TokenStream>(empty.open()), 3, "it"); }),
              HasSubstr("it has only 0 tokens"));
}

/// Where a token comes from. Each id occurs once in all documents.
struct Place {
  std::size_t document = 0;
  std::int64_t at = 0;
};

// Method: a straightforward reading of the rows. Each document ends with 999, all other ids occur once, so that a token
// tells its document and place. Then each token has the next one of its document as the target, unless it is the last.
TEST(PackedRows, HoldEachTokenOnceWithTheNextOneOfItsDocumentAsTarget) {
  constexpr std::int64_t kLength = 20;
  std::vector<Ids> documents;
  std::map<std::int64_t, Place> places;
  std::uint32_t next_id = 1;
  data::order::Random random(8, 0);
  for (std::size_t document = 0; document < 40; ++document) {
    documents.emplace_back(random.below(document % 5 == 0 ? 60 : 9));
    for (auto& id : documents.back()) {
      places[next_id] = {document, &id - documents.back().data()};
      id = next_id++;
    }
  }
  ASSERT_LT(next_id, 999u);
  const auto folder = folder_of_texts(documents, [](data::format::Description& description) { description.eos = 999; });
  const auto source = packed_documents(folder.open(), kLength, 3);
  std::map<std::int64_t, int> seen;
  std::int64_t ends = 0, ends_without_target = 0;
  for (std::int64_t sample = 0; sample < source->samples(); ++sample) {
    const Batch batch = collated(*source, {sample});
    const auto ids = rows_in(batch.at("input_ids")).front(), targets = rows_in(batch.at("targets")).front();
    const auto positions = rows_in(batch.at("position_ids")).front();
    const Numbers& lengths = batch.document_lengths;
    // By place: the number of its document, and whether it begins there. Padding is the last one.
    Numbers segments;
    for (std::size_t document = 0; document < lengths.size(); ++document)
      segments.insert(segments.end(), static_cast<std::size_t>(lengths[document]), static_cast<std::int64_t>(document));
    ASSERT_EQ(segments.size(), ids.size());
    const bool has_padding = source->length(sample) < static_cast<std::int64_t>(ids.size());
    const auto padding = has_padding ? static_cast<std::int64_t>(lengths.size()) - 1 : -1;
    const at::Tensor& starts = batch.at("document_starts");
    ASSERT_EQ(starts.scalar_type(), at::kInt);
    ASSERT_EQ(starts.size(0), static_cast<std::int64_t>(lengths.size()) + 1);
    EXPECT_EQ(starts[0].item<int>(), 0);
    EXPECT_EQ(starts[-1].item<int>(), static_cast<int>(ids.size()));
    std::int64_t weight = 0, tokens = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (segments[i] == padding) {
        EXPECT_THAT((Numbers{ids[i], targets[i], positions[i]}), ElementsAre(0, data::order::kNoTarget, 0));
        continue;
      }
      ++tokens;
      weight += targets[i] == data::order::kNoTarget ? 0 : 1;
      const bool begins = i == 0 || segments[i] != segments[i - 1];
      EXPECT_EQ(positions[i], begins ? 0 : positions[i - 1] + 1);
      if (begins) {
        EXPECT_EQ(starts[segments[i]].item<int>(), static_cast<int>(i));
      } else {
        EXPECT_EQ(targets[i - 1], ids[i]) << "within a document";
      }
      if (ids[i] == 999) {
        ++ends;
        ends_without_target += targets[i] == data::order::kNoTarget ? 1 : 0;
        continue;
      }
      ++seen[ids[i]];
      const Place place = places.at(ids[i]);
      const auto& document = documents[place.document];
      const bool last = place.at + 1 == static_cast<std::int64_t>(document.size());
      EXPECT_EQ(targets[i], last ? 999 : document[static_cast<std::size_t>(place.at) + 1]) << "id " << ids[i];
    }
    EXPECT_EQ(batch.weight, weight);
    EXPECT_EQ(batch.tokens, tokens);
    EXPECT_EQ(source->length(sample), tokens);
    EXPECT_LE(tokens, kLength);
  }
  EXPECT_EQ(seen.size(), places.size());
  for (const auto& [id, times] : seen) EXPECT_EQ(times, 1) << id;
  EXPECT_EQ(ends, documents.size());
  EXPECT_EQ(ends_without_target, documents.size());
}

TEST(PackedRows, ArePaddedToAMultipleOfEightWithinTheRow) {
  const auto folder = folder_of_texts({{1, 2, 3}, Ids(17, 5), {}}, [](data::format::Description& description) {
    description.prefix = {7};
    description.pad = 9;
  });
  const auto source = packed_documents(folder.open(), 20, 0);
  ASSERT_EQ(source->samples(), 2);
  const std::int64_t of_long = source->length(0) > source->length(1) ? 0 : 1;
  // The prefix alone is a document, too.
  EXPECT_EQ(source->length(0) + source->length(1), 1 + 3 + 1 + 17 + 1);
  const Batch both = collated(*source, {of_long, 1 - of_long});
  EXPECT_EQ(both.at("input_ids").sizes(), (std::vector<std::int64_t>{2, 20})) << "24 would exceed the row";
  const Batch small = collated(*source, {1 - of_long});
  EXPECT_EQ(small.at("input_ids").sizes(), (std::vector<std::int64_t>{1, 8}));
  EXPECT_EQ(rows_in(small.at("input_ids")).front().back(), 9);
  Numbers lengths = both.document_lengths;
  EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}), 40) << "of both rows, with padding";
  EXPECT_EQ(small.to(at::kCPU).document_lengths, small.document_lengths);
  EXPECT_THROW(collated(*source, {2}), std::out_of_range);
}

TEST(PackedRows, RefuseLengthsAndDataThatGiveNoRows) {
  const auto folder = folder_of_texts({{1}});
  EXPECT_EQ(packed_documents(folder.open(), 1'000'000, 0)->samples(), 1) << "no length is too long";
  EXPECT_THAT(message_of<base::UsageError>([&] { packed_documents(folder.open(), 0, 0); }),
              HasSubstr("data.sequence_length = 0"));
  const auto empty = folder_of_texts({{}, {}});
  EXPECT_EQ(message_of<base::UsageError>([&] { packed_documents(empty.open(), 8, 0); }),
            "the data has no token in 2 documents");
}

}  // namespace
}  // namespace worker
