// The tokenizer.json that is written about a model of sentencepiece. spm_tokenizer_test.cpp looks at the ids.
#include "data/tokenizers/spm_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/tokenizers/small_spm.h"
#include "tests/data/tokenizers/small_tokenizers.h"

namespace data::tokenizers {
namespace {

using test::error_of;
using test::Json;
using test::kSpace;
using test::small_llama;
using test::small_model;
using test::small_t5;
using test::usual_options;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

Json json_of(const SpmModel& model, const SpmOptions& options) {
  return Json::parse(tokenizer_json_of(model, options));
}

std::vector<std::string> contents(const Json& file) {
  std::vector<std::string> texts;
  for (const auto& token : file.at("added_tokens")) texts.push_back(token.at("content"));
  return texts;
}

std::vector<std::string> types(const Json& steps) {
  std::vector<std::string> names;
  for (const auto& step : steps) names.push_back(step.at("type"));
  return names;
}

TEST(Base64, ItIsPaddedToFours) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64("\xFB\xFF\xFE"), "+//+");
}

// The order of transformers' generate_merges(): score, then characters of the left part, then of the right one, each
// from large to small. Merges that are equal in all three stay in the order of pieces, and in a piece of their ids.
TEST(SpmMerges, EachCutOfAPieceIsAMergeAndHighScoresComeFirst) {
  SpmModel model = small_model(SpmAlgorithm::kBpe, {"a", "b", "c", "bc", "ab", "abc"});
  model.pieces[7].score = -4;  // ab, as bc
  EXPECT_THAT(merges_of(model, SpmStyle::kPlain),
              ElementsAre(Pair("b", "c"), Pair("a", "b"), Pair("ab", "c"), Pair("a", "bc")));
}

TEST(SpmMerges, CharactersAreCountedAndNotBytes) {
  const std::string e = "\xC3\xA9";
  SpmModel model = small_model(SpmAlgorithm::kBpe, {e, "x", "xx", e + "x"});
  model.pieces[6].score = model.pieces[5].score;
  EXPECT_THAT(merges_of(model, SpmStyle::kPlain), ElementsAre(Pair("x", "x"), Pair(e, "x")));
}

TEST(SpmMerges, OnlyAPlainModelLeavesOutWhatSentencepieceNeverFinds) {
  const SpmModel model = small_model(SpmAlgorithm::kBpe, {"<", "s", ">", "s>"});
  EXPECT_THAT(merges_of(model, SpmStyle::kPlain), ElementsAre(Pair("s", ">")));
  EXPECT_THAT(merges_of(model, SpmStyle::kLlama), ElementsAre(Pair("<", "s>"), Pair("s", ">")));
}

TEST(SpmJson, APlainModelDoesWhatItsOwnSettingsSay) {
  SpmModel model = small_model(SpmAlgorithm::kUnigram, {kSpace, "a"});
  const auto steps = [&] { return types(json_of(model, {}).at("normalizer").at("normalizers")); };
  EXPECT_THAT(steps(), ElementsAre("Replace", "Replace", "Replace", "Prepend", "Replace"));
  model.charsmap = std::string("\x04\0\0\0\0\0\0\0", 8);
  EXPECT_EQ(json_of(model, {}).at("normalizer").at("normalizers").at(0),
            (Json{{"type", "Precompiled"}, {"precompiled_charsmap", "BAAAAAAAAAA="}}));
  model.remove_extra_whitespaces = false;
  EXPECT_THAT(steps(), ElementsAre("Precompiled", "Prepend", "Replace"));
  model.add_dummy_prefix = false;
  EXPECT_THAT(steps(), ElementsAre("Precompiled", "Replace"));
  const Json file = json_of(model, {});
  EXPECT_TRUE(file.at("pre_tokenizer").is_null());
  EXPECT_TRUE(file.at("post_processor").is_null());
  EXPECT_THAT(types(file.at("decoder").at("decoders")), ElementsAre("Replace", "Fuse"));
  EXPECT_EQ(file.at("model").at("unk_id"), 0);
  EXPECT_EQ(file.at("model").at("vocab").at(4), (Json{"a", -2.0}));
}

TEST(SpmJson, ControlUnknownAndUserDefinedPiecesAreAddedTokens) {
  SpmModel model = small_model(SpmAlgorithm::kUnigram, {"a", "<mine>"});
  model.pieces[4].type = SpmType::kUserDefined;
  const Json file = json_of(model, {});
  EXPECT_THAT(contents(file), ElementsAre("<unk>", "<s>", "</s>", "<mine>"));
  EXPECT_EQ(file.at("added_tokens").at(3), test::added_token(4, "<mine>", false));
  EXPECT_EQ(file.at("added_tokens").at(1), test::added_token(1, "<s>", true));
}

TEST(SpmJson, AddedTokensThatAreNoPiecesGetTheNextIds) {
  const SpmModel model = small_model(SpmAlgorithm::kUnigram, {"a"});
  SpmOptions options;
  options.added = {{.text = "<new>", .strips_left = true, .id = 4}, {.text = "a"}, {.text = "<newer>"}};
  const Json file = json_of(model, options);
  EXPECT_THAT(contents(file), ElementsAre("<unk>", "<s>", "</s>", "a", "<new>", "<newer>"));
  EXPECT_EQ(file.at("added_tokens").at(4).at("id"), 4);
  EXPECT_EQ(file.at("added_tokens").at(4).at("lstrip"), true);
  EXPECT_EQ(file.at("added_tokens").at(5).at("id"), 5);
  options.added[0].id = 7;
  EXPECT_EQ(error_of([&] { tokenizer_json_of(model, options); }),
            "the added token \"<new>\" gets the id 4, but the folder's files say 7; they belong to another model file");
}

TEST(SpmJson, T5HasItsExtraIdsAfterThePiecesAndAnEndAfterEachText) {
  const SpmModel model = small_t5({"a"});
  const Json file = json_of(model, usual_options(SpmStyle::kT5));
  const Json& vocabulary = file.at("model").at("vocab");
  ASSERT_EQ(vocabulary.size(), 104U);
  EXPECT_EQ(vocabulary.at(4), (Json{"<extra_id_99>", 0.0}));
  EXPECT_EQ(vocabulary.at(103), (Json{"<extra_id_0>", 0.0}));
  EXPECT_EQ(file.at("model").at("unk_id"), 2);
  EXPECT_EQ(contents(file).size(), 103U);  // without "a"
  EXPECT_EQ(file.at("post_processor").at("special_tokens").at("</s>").at("ids"), Json::array({1}));
  EXPECT_THAT(types(file.at("normalizer").at("normalizers")), ElementsAre("Strip", "Replace"));
}

TEST(SpmJson, NewerBehaviourPutsASpaceOnlyBeforeTheText) {
  SpmOptions options = usual_options(SpmStyle::kT5);
  const auto scheme = [&] { return json_of(small_t5({"a"}), options).at("pre_tokenizer").at("prepend_scheme"); };
  EXPECT_EQ(scheme(), "always");
  options.legacy = false;
  EXPECT_EQ(scheme(), "first");
  options.add_prefix_space = false;
  EXPECT_EQ(scheme(), "never");
  options = usual_options(SpmStyle::kLlama);
  EXPECT_TRUE(json_of(small_llama({"a"}), options).at("pre_tokenizer").is_null());
  options.legacy = false;
  const Json file = json_of(small_llama({"a"}), options);
  EXPECT_TRUE(file.at("normalizer").is_null());
  EXPECT_EQ(file.at("pre_tokenizer").at("prepend_scheme"), "first");
  EXPECT_EQ(file.at("pre_tokenizer").at("split"), false);
}

TEST(SpmJson, WhatNoTokenizerJsonCanExpressIsRefused) {
  const auto refusal = [](const SpmModel& model, SpmStyle style) {
    return error_of([&] { tokenizer_json_of(model, usual_options(style)); });
  };
  const SpmModel good = small_model(SpmAlgorithm::kUnigram, {"a"});
  SpmModel model = good;
  model.algorithm = SpmAlgorithm::kWord;
  EXPECT_THAT(refusal(model, SpmStyle::kPlain), HasSubstr("model_type is WORD"));
  model = good;
  model.pieces[3].type = SpmType::kUnused;
  EXPECT_THAT(refusal(model, SpmStyle::kPlain), HasSubstr("piece 3 has the type UNUSED"));
  model = good;
  model.treat_whitespace_as_suffix = true;
  EXPECT_THAT(refusal(model, SpmStyle::kPlain), HasSubstr("treat_whitespace_as_suffix"));
  model = good;
  model.escape_whitespaces = false;
  EXPECT_THAT(refusal(model, SpmStyle::kPlain), HasSubstr("escape_whitespaces"));
  EXPECT_THAT(refusal(small_t5({"a"}), SpmStyle::kLlama), HasSubstr("the unknown piece has the id 2"));
  model = small_t5({"a"});
  model.pieces[1].text = "<end>";
  EXPECT_THAT(refusal(model, SpmStyle::kT5), HasSubstr("no piece is </s>"));
  for (const char* piece : {"<extra_id_7>", "<extra_id_99>"}) {
    EXPECT_THAT(refusal(small_t5({piece}), SpmStyle::kT5), HasSubstr("\"extra_ids\": 0")) << piece;
  }
}

}  // namespace
}  // namespace data::tokenizers
