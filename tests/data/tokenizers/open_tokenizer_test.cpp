#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/tokenizers/tokenizer.h"
#include "tests/data/tokenizers/small_spm.h"
#include "tests/data/tokenizers/small_tokenizers.h"

namespace data::tokenizers {
namespace {

using test::error_of;
using test::TemporaryFolder;
using test::write_file;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(OpenTokenizer, APathThatLeadsNowhereIsNamedWithWhatCanBeOpened) {
  EXPECT_THAT(
      error_of([] { open_tokenizer("/nowhere/at all"); }),
      AllOf(StartsWith("\"/nowhere/at all\": no such tokenizer"), HasSubstr("tokenizer.json"), HasSubstr("\"bytes\"")));
  EXPECT_THAT(error_of([] { open_tokenizer(""); }), StartsWith("\"\": no such tokenizer"));
  EXPECT_THAT(error_of([] { open_tokenizer("/dev/null"); }), StartsWith("\"/dev/null\": no such tokenizer"));
}

TEST(OpenTokenizer, AFolderWithoutATokenizerIsNamed) {
  const TemporaryFolder folder;
  EXPECT_THAT(
      error_of([&] { open_tokenizer(folder.path()); }),
      StartsWith(folder.path().string() + ": no tokenizer.json, tokenizer.model or spiece.model in this folder; name"));
}

TEST(OpenTokenizer, ADamagedModelOfSentencepieceIsRefusedByItsByte) {
  for (const std::string name : {"tokenizer.model", "spiece.model"}) {
    const TemporaryFolder folder;
    write_file(folder / name, "\x0A\x0E\x0A");
    const auto refused = AllOf(StartsWith((folder / name).string() + ": byte 0: "),
                               HasSubstr("field 1 has 14 bytes, but only 1 follow"), HasSubstr("copy it again"));
    EXPECT_THAT(error_of([&] { open_tokenizer(folder.path()); }), refused);
    EXPECT_THAT(error_of([&] { open_tokenizer(folder / name); }), refused);
  }
}

TEST(OpenTokenizer, AModelThatCannotBeExpressedIsRefusedWithItsPath) {
  const TemporaryFolder folder;
  write_file(folder / "tokenizer.model", test::proto_of(test::small_model(SpmAlgorithm::kWord, {"a"})));
  EXPECT_THAT(error_of([&] { open_tokenizer(folder.path()); }),
              StartsWith((folder / "tokenizer.model").string() + ": the model_type is WORD"));
}

TEST(OpenTokenizer, AModelThatIsTooLargeIsNotRead) {
  const TemporaryFolder folder;
  write_file(folder / "tokenizer.model", "");
  std::filesystem::resize_file(folder / "tokenizer.model", (64U << 20) + 1);
  EXPECT_EQ(
      error_of([&] { open_tokenizer(folder.path()); }),
      (folder / "tokenizer.model").string() + ": 67108865 bytes, more than the 67108864 that such a file may have");
}

TEST(OpenTokenizer, TheFilesOfATokenizerAreThoseThatAreThere) {
  const TemporaryFolder folder;
  EXPECT_THAT(data::format::tokenizer_files(folder.path()), ::testing::IsEmpty());
  EXPECT_THAT(data::format::tokenizer_files(folder / "nowhere"), ::testing::IsEmpty());
  for (const std::string name : {"config.json", "spiece.model", "tokenizer.json", "model.safetensors"}) {
    write_file(folder / name, "x");
  }
  std::filesystem::create_directory(folder / "vocab.txt");
  EXPECT_THAT(data::format::tokenizer_files(folder.path()),
              ::testing::ElementsAre(folder / "tokenizer.json", folder / "spiece.model"));
}

}  // namespace
}  // namespace data::tokenizers
