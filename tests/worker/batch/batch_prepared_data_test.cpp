// Goal: data that a run cannot train on is refused before its first step, with what to do.
#include "worker/batch/prepared_data.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "base/usage_error.h"
#include "tests/worker/batch_folders.h"

namespace worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Ids;
using testing::message_of;
using testing::PreparedFolder;
using testing::Records;
using ::testing::StartsWith;
using testing::texts;

const PreparedNeeds kTokens{.kinds = {data::format::Kind::kTokens}, .recipe = "causal_lm"};

std::string error_of_opening(const std::filesystem::path& folder, const PreparedNeeds& needs = kTokens, int rank = 0,
                             int world_size = 1) {
  return message_of<base::UsageError>([&] { open_prepared(folder, needs, rank, world_size); });
}

TEST(PreparedDataOfARun, HasItsSplits) {
  const PreparedFolder folder(data::format::Kind::kTokens,
                              {{"train", texts({{1, 2}, {3}})}, {"validation", texts({{4}})}});
  PreparedNeeds needs = kTokens;
  needs.tokenizer = {{.path = "/models/x", .kind = "tokenizer.json", .sha256 = base::hex(testing::kTestTokenizer)}};
  needs.vocabulary = 1000;
  const auto data = open_prepared(folder.path(), needs, 0, 1);
  EXPECT_EQ(data.train->records(), 2);
  EXPECT_EQ(data.validation->records(), 1);
  EXPECT_EQ(data.description.fingerprint, data.train->description().fingerprint);
}

TEST(PreparedDataOfARun, MayLackValidation) {
  const PreparedFolder without(data::format::Kind::kTokens, {{"train", texts({{1}})}});
  EXPECT_EQ(open_prepared(without.path(), kTokens, 0, 1).validation, nullptr);
  const PreparedFolder empty(data::format::Kind::kTokens, {{"train", texts({{1}})}, {"validation", {}}});
  EXPECT_EQ(open_prepared(empty.path(), kTokens, 0, 1).validation, nullptr);
}

TEST(PreparedDataOfARun, OfAnotherTokenizerIsRefusedWithBoth) {
  const PreparedFolder folder(data::format::Kind::kTokens, {{"train", texts({{1}})}});
  PreparedNeeds needs = kTokens;
  needs.tokenizer = {{.path = "/models/x", .kind = "tokenizer.json", .sha256 = std::string(64, 'a')}};
  const auto is = base::hex(testing::kTestTokenizer).substr(0, 12);
  EXPECT_EQ(error_of_opening(folder.path(), needs),
            "data.prepared = " + folder.path().string() + ": made with another tokenizer (tokenizer.json, sha256 " +
                is +
                "...; tokenizer.json of /models/x has aaaaaaaaaaaa...); prepare it again with --tokenizer /models/x");
  needs.tokenizer->path = needs.tokenizer->kind = "bytes";
  EXPECT_THAT(error_of_opening(folder.path(), needs),
              HasSubstr("; bytes has aaaaaaaaaaaa...); prepare it again with --tokenizer bytes"));
}

TEST(PreparedDataOfARun, WithIdsBeyondTheModelIsRefused) {
  const PreparedFolder folder(data::format::Kind::kTokens, {{"train", texts({{1}})}});
  PreparedNeeds needs = kTokens;
  needs.vocabulary = 999;
  EXPECT_THAT(error_of_opening(folder.path(), needs),
              HasSubstr("its vocabulary has 1000 tokens, more than model.vocab_size = 999"));
  needs.vocabulary = 1024;  // embeddings are often padded
  EXPECT_EQ(open_prepared(folder.path(), needs, 0, 1).train->records(), 1);
}

TEST(PreparedDataOfARun, OfAnotherKindIsRefusedWithWhatMakesTheRightOne) {
  const PreparedFolder pairs(data::format::Kind::kPairs, {{"train", {{{{1}, {2}}}}}});
  EXPECT_THAT(error_of_opening(pairs.path()),
              HasSubstr("it holds pairs, and the recipe causal_lm trains on tokens; prepare those: muster data prepare "
                        "--from text, jsonl, man or chess"));
  EXPECT_THAT(error_of_opening(pairs.path(),
                               {.kinds = {data::format::Kind::kLabelled, data::format::Kind::kImages}, .recipe = "x"}),
              HasSubstr("the recipe x trains on labelled or images"));
}

TEST(PreparedDataOfARun, WithoutAnythingToTrainOnIsRefused) {
  const PreparedFolder empty(data::format::Kind::kTokens, {{"train", {}}, {"validation", texts({{1}})}});
  EXPECT_THAT(error_of_opening(empty.path()), HasSubstr("its split train has no records; prepare more data"));
  const PreparedFolder other(data::format::Kind::kTokens, {{"test", texts({{1}})}});
  EXPECT_THAT(error_of_opening(other.path()), HasSubstr("has no split \"train\"; it has test"));
}

TEST(PreparedDataOfARun, UnfinishedOrDamagedIsRefused) {
  const testing::TemporaryFolder nothing;
  EXPECT_THAT(error_of_opening(nothing.path()),
              AllOf(StartsWith("data.prepared = " + nothing.path().string() + ": "), HasSubstr("unfinished")));
  EXPECT_THAT(error_of_opening(nothing / "is_not_there"), HasSubstr("has no data.json"));

  const PreparedFolder folder(data::format::Kind::kTokens,
                              {{"train", texts({{1, 2}})}, {"validation", texts({{3, 4}})}});
  const auto file = folder.path() / data::format::file_name("validation", 0);
  auto bytes = testing::read_file(file);
  bytes[4096] = 9;
  std::filesystem::remove(file);
  testing::write_file(file, bytes);
  EXPECT_THAT(error_of_opening(folder.path()), HasSubstr("validation-00000.mdat: block 0 (bytes 4096 to"));
  // The block is rank 0's; rank 1 has none to read.
  EXPECT_THAT(error_of_opening(folder.path(), kTokens, 0, 2), HasSubstr("block 0"));
  EXPECT_EQ(open_prepared(folder.path(), kTokens, 1, 2).train->records(), 1);
}

}  // namespace
}  // namespace worker
