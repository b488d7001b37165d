// Goal: an encoder gets masked texts for pretraining, and labelled ones for classification.
#include <ATen/ops/nonzero.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/usage_error.h"
#include "data/order/masking.h"
#include "tests/worker/batch_folders.h"
#include "worker/batch/encoder_texts.h"
#include "worker/batch/loader.h"

namespace worker {
namespace {

using testing::collated;
using ::testing::DoubleEq;
using ::testing::ElementsAre;
using testing::expect_equal;
using testing::folder_of_texts;
using ::testing::HasSubstr;
using testing::Ids;
using testing::message_of;
using testing::Numbers;
using testing::numbers_of;
using testing::PreparedFolder;
using testing::Records;
using testing::rows_in;

constexpr std::int64_t kPad = 0, kCls = 1, kSep = 2, kMask = 3, kUnknown = 4;

void as_bert(data::format::Description& description) {
  description.pad = kPad;
  description.mask = kMask;
  description.prefix = {kCls};
  description.suffix = {kSep};
}

/// Documents of ordinary ids, and of every tenth token an unknown one.
std::vector<Ids> documents_of(const std::vector<std::size_t>& sizes) {
  std::vector<Ids> out;
  std::uint32_t id = 100;
  for (const auto size : sizes) {
    out.emplace_back(size);
    for (auto& token : out.back()) token = id++ % 10 == 0 ? kUnknown : id;
  }
  return out;
}

const MaskedOptions kMasked{.length = 24, .special = {static_cast<std::uint32_t>(kUnknown)}};

// Method: the pieces are cut by hand, and each row is compared token by token.
TEST(MaskedBatches, KeepAllThatIsNotMaskedAndNeverMaskSpecialTokens) {
  const auto documents = documents_of({50, 0, 7, 22, 1, 200});
  std::vector<Ids> pieces;
  for (const auto& document : documents) {
    for (std::size_t begin = 0; begin < document.size(); begin += 22) {
      const auto end = std::min(document.size(), begin + 22);
      pieces.emplace_back(document.begin() + static_cast<std::ptrdiff_t>(begin),
                          document.begin() + static_cast<std::ptrdiff_t>(end));
    }
  }
  const auto folder = folder_of_texts(documents, as_bert);
  const auto source = masked_texts(folder.open(), kMasked);
  ASSERT_EQ(source->samples(), pieces.size());
  Numbers samples(pieces.size());
  std::iota(samples.begin(), samples.end(), 0);
  std::int64_t ordinary = 0, chosen = 0, masked = 0, kept = 0;
  for (std::int64_t epoch = 0; epoch < 40; ++epoch) {
    std::vector<std::uint64_t> draws;
    for (const auto sample : samples) draws.push_back(sample_draw(1, epoch, sample));
    const Batch batch = source->collate(samples, draws);
    const auto inputs = rows_in(batch.at("input_ids")), targets = rows_in(batch.at("targets")),
               seen = rows_in(batch.at("attention_mask"));
    std::int64_t in_epoch = 0;
    for (std::size_t row = 0; row < pieces.size(); ++row) {
      Numbers text{kCls};
      text.insert(text.end(), pieces[row].begin(), pieces[row].end());
      text.push_back(kSep);
      for (std::size_t i = 0; i < inputs[row].size(); ++i) {
        EXPECT_EQ(seen[row][i], i < text.size() ? 1 : 0);
        const auto was = i < text.size() ? text[i] : kPad;
        ordinary += was > kUnknown ? 1 : 0;
        if (targets[row][i] == data::order::kNoTarget) {
          EXPECT_EQ(inputs[row][i], was);
          continue;
        }
        ++in_epoch;
        EXPECT_EQ(targets[row][i], was);
        EXPECT_GT(was, kUnknown) << "special tokens and padding are never masked";
        EXPECT_TRUE(inputs[row][i] == kMask || inputs[row][i] > kUnknown) << inputs[row][i];
        masked += inputs[row][i] == kMask ? 1 : 0;
        kept += inputs[row][i] == was ? 1 : 0;
      }
    }
    chosen += in_epoch;
    EXPECT_EQ(batch.weight, in_epoch);
    EXPECT_EQ(batch.tokens, batch.at("attention_mask").sum().item<std::int64_t>());
    EXPECT_EQ(numbers_of(batch.at("masked")),
              numbers_of(at::nonzero(batch.at("targets").flatten().ne(data::order::kNoTarget))));
    EXPECT_EQ(batch.at("token_type_ids").abs().sum().item<std::int64_t>(), 0);
  }
  // About 10,000 ordinary tokens, so five standard deviations are 0.018; of 1,500 chosen ones 0.052 and 0.039.
  const auto share = [](std::int64_t of, std::int64_t all) {
    return static_cast<double>(of) / static_cast<double>(all);
  };
  EXPECT_NEAR(share(chosen, ordinary), 0.15, 0.018);
  EXPECT_NEAR(share(masked, chosen), 0.8, 0.052);
  EXPECT_NEAR(share(kept, chosen), 0.1, 0.039);
}

TEST(MaskedBatches, DependOnDrawsAndNotOnNeighbours) {
  const auto folder = folder_of_texts(documents_of({5, 20, 9}), as_bert);
  const auto source = masked_texts(folder.open(), kMasked);
  const Batch together = collated(*source, {2, 1, 0});
  for (std::int64_t row = 0; row < 3; ++row) {
    const Batch alone = collated(*source, {2 - row});
    for (const char* name : {"input_ids", "targets", "attention_mask"}) {
      EXPECT_EQ(numbers_of(together.at(name)[row].slice(0, 0, source->length(2 - row))),
                numbers_of(alone.at(name)[0].slice(0, 0, source->length(2 - row))));
    }
  }
}

// Goal: the sums that a step is trained on are equal at every world size and for every number of threads.
TEST(MaskedBatches, HaveEqualWeightsAtEveryWorldSize) {
  const auto folder = folder_of_texts(documents_of({50, 3, 7, 22, 1, 90, 17, 30, 64}), as_bert);
  const std::shared_ptr<const BatchSource> source = masked_texts(folder.open(), kMasked);
  const auto loader_of = [&](int rank, int world_size, int threads) {
    data::order::Order order({.samples = source->samples(),
                              .seed = 2,
                              .batch_size = 6,
                              .bucket_batches = 2,
                              .length = [source](std::int64_t sample) { return source->length(sample); }});
    return Loader(source, std::move(order), rank, world_size, {.threads = threads, .seed = 2});
  };
  Loader one = loader_of(0, 1, 0), four = loader_of(0, 1, 4);
  std::vector<double> weights, tokens;
  for (int step = 0; step < 12; ++step) {
    const Batch batch = one.next(6);
    expect_equal(four.next(6), batch);
    weights.push_back(batch.weight);
    tokens.push_back(static_cast<double>(batch.tokens));
  }
  for (const int world_size : {2, 3}) {
    std::vector<double> weight_of(weights.size(), 0), tokens_of(weights.size(), 0);
    for (int rank = 0; rank < world_size; ++rank) {
      Loader loader = loader_of(rank, world_size, 2);
      for (std::size_t step = 0; step < weights.size(); ++step) {
        const Batch batch = loader.next(6 / world_size);
        weight_of[step] += batch.weight;
        tokens_of[step] += static_cast<double>(batch.tokens);
      }
    }
    EXPECT_EQ(weight_of, weights) << world_size;
    EXPECT_EQ(tokens_of, tokens) << world_size;
  }
}

TEST(MaskedBatches, MayHaveNothingMasked) {
  const auto folder = folder_of_texts({{static_cast<std::uint32_t>(kUnknown)}}, as_bert);
  const Batch batch = collated(*masked_texts(folder.open(), kMasked), {0});
  EXPECT_EQ(batch.weight, 0);
  EXPECT_EQ(batch.at("masked").sizes(), (std::vector<std::int64_t>{0}));
  EXPECT_EQ(batch.samples, 1);
}

TEST(MaskedBatches, CanHaveAMaskTokenAfterTheVocabulary) {
  const auto folder = folder_of_texts({Ids(200, 65)}, [](data::format::Description& description) {
    description.vocabulary = 257;
    description.eos = 256;
  });
  const auto source = masked_texts(folder.open(), {.length = 200, .mask = 257});
  const auto ids = rows_in(collated(*source, {0}).at("input_ids")).front();
  EXPECT_GT(std::count(ids.begin(), ids.end(), 257), 5);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 256), 0);
}

TEST(MaskedBatches, RefuseATokenizerWithoutAMaskAndOptionsOutOfRange) {
  const auto plain = folder_of_texts({{5}});
  EXPECT_THAT(message_of<base::UsageError>([&] { masked_texts(plain.open(), kMasked); }),
              HasSubstr("the data's tokenizer (tokenizer.json) has no mask token"));
  const auto folder = folder_of_texts({{5}}, as_bert);
  EXPECT_THAT(message_of<base::UsageError>([&] { masked_texts(folder.open(), {.length = 8, .share = 1.5}); }),
              HasSubstr("masking: share is 1.5"));
  EXPECT_THAT(message_of<base::UsageError>([&] { masked_texts(folder.open(), {.length = 2}); }),
              HasSubstr("data.sequence_length = 2: the tokenizer puts 2 special tokens"));
  EXPECT_THAT(message_of<base::UsageError>([&] { masked_texts(folder.open(), {.length = 8, .special = {1000}}); }),
              HasSubstr("a special token is 1000"));
  const auto empty = folder_of_texts({{}, {}}, as_bert);
  EXPECT_THAT(message_of<base::UsageError>([&] { masked_texts(empty.open(), kMasked); }),
              HasSubstr("no token in 2 documents"));
}

PreparedFolder folder_of_labels(const Records& records) {
  return PreparedFolder(data::format::Kind::kLabelled, {{"train", records}},
                        [](data::format::Description& description) {
                          as_bert(description);
                          description.labels = {"admin", "games", "libs"};
                        });
}

TEST(LabelledBatches, HaveTheLabelsAndWeighByClass) {
  const auto folder = folder_of_labels({{{{10, 11, 12}}, 2}, {{{}}, 0}, {{Ids(30, 9)}, 0}});
  const auto source = labelled_texts(folder.open(), {.length = 9, .class_weights = {0.5, 7, 3}});
  const Batch batch = collated(*source, {0, 1, 2});
  EXPECT_THAT(rows_in(batch.at("input_ids")),
              ElementsAre(Numbers{kCls, 10, 11, 12, kSep, 0, 0, 0, 0}, Numbers{kCls, kSep, 0, 0, 0, 0, 0, 0, 0},
                          Numbers{kCls, 9, 9, 9, 9, 9, 9, 9, kSep}));
  EXPECT_THAT(rows_in(batch.at("attention_mask")).front(), ElementsAre(1, 1, 1, 1, 1, 0, 0, 0, 0));
  EXPECT_EQ(numbers_of(batch.at("labels")), (Numbers{2, 0, 0}));
  EXPECT_EQ(batch.at("token_type_ids").sizes(), batch.at("input_ids").sizes());
  EXPECT_EQ(batch.weight, 3 + 0.5 + 0.5);
  EXPECT_EQ(batch.tokens, 5 + 2 + 9);
  EXPECT_EQ(source->length(2), 9);
  EXPECT_EQ(collated(*labelled_texts(folder.open(), {.length = 9}), {0, 1}).weight, 2) << "each counts 1 by default";
}

TEST(LabelledBatches, BalancedWeightsAreThoseOfScikitLearn) {
  const auto folder = folder_of_labels({{{{10}}, 2}, {{{10}}, 0}, {{{10}}, 0}, {{{10}}, 0}});
  EXPECT_THAT(balanced_weights(*folder.open()), ElementsAre(DoubleEq(4.0 / (3 * 3)), 0, DoubleEq(4.0 / 3)));
  const auto all = folder_of_labels({{{{10}}, 0},
                                     {{{10}}, 1},
                                     {{{10}}, 1},
                                     {{{10}}, 1},
                                     {{{10}}, 2},
                                     {{{10}}, 2},
                                     {{{10}}, 2},
                                     {{{10}}, 2},
                                     {{{10}}, 2},
                                     {{{10}}, 2}});
  EXPECT_THAT(balanced_weights(*all.open()), ElementsAre(DoubleEq(10.0 / 3), DoubleEq(10.0 / 9), DoubleEq(10.0 / 18)));
}

TEST(LabelledBatches, RefuseWeightsThatAreNotOneALabel) {
  const auto folder = folder_of_labels({{{{10}}, 2}});
  const auto message = [&](std::vector<double> weights) {
    return message_of<base::UsageError>(
        [&] { labelled_texts(folder.open(), {.length = 9, .class_weights = std::move(weights)}); });
  };
  EXPECT_THAT(message({1, 2}), HasSubstr("train.class_weights: 2 weights for 3 labels"));
  EXPECT_THAT(message({1, -2, 1}), HasSubstr("the weight of the label \"games\" is -2.0"));
  EXPECT_THAT(message({1, 1, std::numeric_limits<double>::quiet_NaN()}), HasSubstr("\"libs\" is nan"));
  const auto empty = folder_of_labels({});
  EXPECT_THAT(message_of<base::UsageError>([&] { labelled_texts(empty.open(), {.length = 9}); }),
              HasSubstr("no labelled text"));
}

}  // namespace
}  // namespace worker
