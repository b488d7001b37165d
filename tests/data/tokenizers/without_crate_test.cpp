#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/tokenizers/tokenizer.h"
#include "tests/data/tokenizers/small_spm.h"
#include "tests/data/tokenizers/small_tokenizers.h"

namespace data::tokenizers {
namespace {

TEST(WithoutTheCrate, ATokenizerJsonIsRefusedWithTheOptionThatReadsIt) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "tokenizer.json", test::words().dump());
  EXPECT_THAT(test::error_of([&] { open_tokenizer(folder.path()); }),
              ::testing::AllOf(::testing::StartsWith((folder / "tokenizer.json").string()),
                               ::testing::HasSubstr("-DMUSTER_WITH_TOKENIZERS=ON"), ::testing::HasSubstr("\"bytes\"")));
}

TEST(WithoutTheCrate, AModelOfSentencepieceIsRefusedInTheSameWay) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "tokenizer.model", test::proto_of(test::small_model(SpmAlgorithm::kUnigram, {"a"})));
  EXPECT_THAT(test::error_of([&] { open_tokenizer(folder.path()); }),
              ::testing::AllOf(::testing::StartsWith((folder / "tokenizer.model").string() +
                                                     ": this build reads no model of sentencepiece"),
                               ::testing::HasSubstr("-DMUSTER_WITH_TOKENIZERS=ON")));
}

}  // namespace
}  // namespace data::tokenizers
