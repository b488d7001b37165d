// The ids that small models of sentencepiece give, counted by hand. tests/peers/spm_test.py asks sentencepiece itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/checksum.h"
#include "data/tokenizers/tokenizer.h"
#include "tests/data/tokenizers/small_spm.h"
#include "tests/data/tokenizers/small_tokenizers.h"

namespace data::tokenizers {
namespace {

using Ids = Tokenizer::Ids;
using test::error_of;
using test::kSpace;
using test::proto_of;
using test::small_llama;
using test::small_model;
using test::small_t5;
using test::TemporaryFolder;
using test::write_file;

std::shared_ptr<const Tokenizer> opened(const TemporaryFolder& folder, const SpmModel& model,
                                        const char* name = "tokenizer.model") {
  write_file(folder / name, proto_of(model));
  return open_tokenizer(folder.path());
}

TEST(SpmTokenizer, ItTellsWhatItIs) {
  const TemporaryFolder folder;
  const SpmModel model = small_model(SpmAlgorithm::kUnigram, {kSpace, "a"});
  const auto tokenizer = opened(folder, model);
  EXPECT_EQ(tokenizer->kind(), "sentencepiece");
  EXPECT_EQ(tokenizer->sha256(), base::sha256(proto_of(model)));
  EXPECT_EQ(tokenizer->vocabulary(), 5);
  EXPECT_EQ(tokenizer->piece(3), kSpace);
  EXPECT_EQ(tokenizer->special(), (Special{.bos = 1, .eos = 2, .unk = 0}));
  EXPECT_EQ(open_tokenizer(folder / "tokenizer.model")->encode("a", false), (Ids{3, 4}));
}

TEST(SpmTokenizer, TokenizerJsonComesBeforeAModel) {
  const TemporaryFolder folder;
  write_file(folder / "tokenizer.json", test::words().dump());
  EXPECT_EQ(opened(folder, small_model(SpmAlgorithm::kUnigram, {"a"}))->kind(), "tokenizer.json");
}

TEST(SpmTokenizer, UnigramTakesTheCutWithTheHighestScore) {
  const TemporaryFolder folder;
  SpmModel model = small_model(SpmAlgorithm::kUnigram, {kSpace, "a", "b", "ab", kSpace + "a"});
  model.pieces[6].score = -5.5F;  // ab: less than a and b
  const auto tokenizer = opened(folder, model);
  EXPECT_EQ(tokenizer->encode("ab", false), (Ids{3, 4, 5}));
  model.pieces[6].score = -4;
  EXPECT_EQ(opened(folder, model)->encode("ab", false), (Ids{3, 6}));
}

TEST(SpmTokenizer, APlainModelTreatsSpacesAsSentencepieceDoes) {
  const TemporaryFolder folder;
  SpmModel model = small_model(SpmAlgorithm::kUnigram, {kSpace, "a", "\n"});
  const auto usual = opened(folder, model);
  EXPECT_EQ(usual->encode("  a  a ", false), (Ids{3, 4, 3, 4}));
  EXPECT_EQ(usual->encode("a\n", false), (Ids{3, 4, 5}));
  EXPECT_EQ(usual->encode(kSpace + "a", false), (Ids{3, 3, 4}));
  EXPECT_EQ(usual->encode("a " + kSpace, false), (Ids{3, 4}));
  EXPECT_EQ(usual->encode("   ", false), Ids{});
  EXPECT_EQ(usual->encode("", true), Ids{});
  EXPECT_EQ(usual->decode(Ids{3, 4, 3, 4}, true), "a a");
  model.remove_extra_whitespaces = false;
  EXPECT_EQ(opened(folder, model)->encode(" a  a ", false), (Ids{3, 3, 4, 3, 3, 4, 3}));
  model.add_dummy_prefix = false;
  const auto bare = opened(folder, model);
  EXPECT_EQ(bare->encode(" a", false), (Ids{3, 4}));
  EXPECT_EQ(bare->decode(Ids{3, 4}, true), " a");
}

TEST(SpmTokenizer, UnknownCharactersInARowAreOneId) {
  const TemporaryFolder folder;
  for (const auto algorithm : {SpmAlgorithm::kUnigram, SpmAlgorithm::kBpe}) {
    const auto tokenizer = opened(folder, small_model(algorithm, {kSpace, "a"}));
    EXPECT_EQ(tokenizer->encode("xy\xC3\xA9"
                                "a z",
                                false),
              (Ids{3, 0, 4, 3, 0}));
  }
}

TEST(SpmTokenizer, LlamaMergesByScoreAndFallsBackToBytes) {
  const TemporaryFolder folder;
  const auto tokenizer = opened(folder, small_llama({kSpace + "ab", "ab", "a", "b", kSpace}));
  // Ids: 259 is the first piece after the bytes, and 3 + byte is a byte.
  EXPECT_EQ(tokenizer->encode("ab", true), (Ids{1, 259}));
  EXPECT_EQ(tokenizer->encode("ab  ab", false), (Ids{259, 263, 259}));
  EXPECT_EQ(tokenizer->encode("b\xC3\xA9\n", false), (Ids{263, 262, 3 + 0xC3, 3 + 0xA9, 3 + '\n'}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(" b\xC3\xA9 ab", true), true), " b\xC3\xA9 ab");
  EXPECT_EQ(tokenizer->prefix(), Ids{1});
  EXPECT_EQ(tokenizer->suffix(), Ids{});
  EXPECT_EQ(tokenizer->special(), (Special{.bos = 1, .eos = 2, .unk = 0}));
  EXPECT_EQ(tokenizer->encode("</s>", false), Ids{2});
}

TEST(SpmTokenizer, T5HasAnEndAfterTheTextAndExtraIds) {
  const TemporaryFolder folder;
  write_file(folder / "config.json", R"({"model_type": "t5"})");
  const auto tokenizer = opened(folder, small_t5({kSpace + "a", kSpace, "a"}), "spiece.model");
  EXPECT_EQ(tokenizer->encode("a  a\n", true), (Ids{3, 3, 1}));
  EXPECT_EQ(tokenizer->vocabulary(), 106);
  EXPECT_EQ(tokenizer->piece(105), "<extra_id_0>");
  EXPECT_EQ(tokenizer->encode("a<extra_id_0>a", false), (Ids{3, 105, 3}));
  EXPECT_EQ(tokenizer->special(), (Special{.pad = 0, .eos = 1, .unk = 2}));
  EXPECT_EQ(tokenizer->suffix(), Ids{1});
  EXPECT_EQ(tokenizer->decode(Ids{3, 3, 1}, true), "a a");
}

TEST(SpmTokenizer, AFoldersAddedTokenGetsTheNextId) {
  const TemporaryFolder folder;
  write_file(folder / "tokenizer_config.json", R"({"pad_token": "<pad>"})");
  const auto tokenizer = opened(folder, small_llama({"a", kSpace}));
  EXPECT_EQ(tokenizer->special().pad, 261);
  EXPECT_EQ(tokenizer->vocabulary(), 262);
  EXPECT_EQ(tokenizer->encode("a<pad>", false), (Ids{260, 259, 261}));
}

TEST(SpmTokenizer, WhatTheCrateCannotUseIsAnErrorWithThePath) {
  const TemporaryFolder folder;
  SpmModel model = small_model(SpmAlgorithm::kUnigram, {kSpace, "a"});
  model.charsmap = std::string("\x04\0\0\0\xFF\xFF\xFF\xFF", 8);  // a trie that leads out of itself
  const std::string error = error_of([&] { opened(folder, model); });
  EXPECT_THAT(error, ::testing::AllOf(::testing::StartsWith((folder / "tokenizer.model").string() + ": "),
                                      ::testing::HasSubstr("a panic in the crate tokenizers: index out of bounds")));
}

}  // namespace
}  // namespace data::tokenizers
