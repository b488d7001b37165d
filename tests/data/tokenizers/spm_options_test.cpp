// How the files beside a model of sentencepiece decide what is done with it.
#include "data/tokenizers/spm_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/tokenizers/small_spm.h"
#include "tests/data/tokenizers/small_tokenizers.h"

namespace data::tokenizers {
namespace {

using test::error_of;
using test::Json;
using test::small_llama;
using test::small_model;
using test::small_t5;
using test::usual_options;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class SpmFolder : public ::testing::Test {
 protected:
  void write(const char* name, const Json& json) { test::write_file(folder_ / name, json.dump()); }
  void config(const Json& json) { write("tokenizer_config.json", json); }
  SpmOptions options() const { return spm_options(folder_ / "tokenizer.model", model_); }
  std::string refusal() const {
    return error_of([&] { options(); });
  }
  std::vector<std::string> added() const {
    std::vector<std::string> texts;
    for (const auto& token : options().added) texts.push_back(token.text);
    return texts;
  }

  test::TemporaryFolder folder_;
  SpmModel model_ = small_llama({"a"});
};

TEST_F(SpmFolder, TheClassInPythonDecides) {
  for (const char* name : {"T5Tokenizer", "T5TokenizerFast", "MT5Tokenizer"}) {
    config({{"tokenizer_class", name}});
    EXPECT_EQ(options().style, SpmStyle::kT5) << name;
  }
  for (const char* name : {"LlamaTokenizer", "LlamaTokenizerFast", "CodeLlamaTokenizer"}) {
    config({{"tokenizer_class", name}});
    EXPECT_EQ(options().style, SpmStyle::kLlama) << name;
  }
}

TEST_F(SpmFolder, AClassWithRulesOfItsOwnIsRefused) {
  config({{"tokenizer_class", "XLMRobertaTokenizerFast"}});
  EXPECT_THAT(refusal(), AllOf(StartsWith((folder_ / "tokenizer_config.json").string() + ": tokenizer_class is "),
                               HasSubstr("\"XLMRobertaTokenizer\""), HasSubstr("save_pretrained")));
  config({{"tokenizer_class", "PreTrainedTokenizerFast"}});
  write("config.json", {{"model_type", "albert"}});
  EXPECT_THAT(refusal(), StartsWith((folder_ / "config.json").string() + ": model_type is \"albert\""));
}

TEST_F(SpmFolder, ElseTheModelsTypeDecides) {
  const std::pair<const char*, SpmStyle> cases[] = {
      {"t5", SpmStyle::kT5}, {"umt5", SpmStyle::kT5}, {"llama", SpmStyle::kLlama}, {"gpt_neox", SpmStyle::kPlain}};
  for (const auto& [type, style] : cases) {
    write("config.json", {{"model_type", type}});
    EXPECT_EQ(options().style, style) << type;
  }
}

TEST_F(SpmFolder, ElseTheModelItselfDoes) {
  EXPECT_EQ(options().style, SpmStyle::kLlama);
  model_.remove_extra_whitespaces = true;  // the default of sentencepiece, but not what Llama's own has
  EXPECT_EQ(options().style, SpmStyle::kPlain);
  model_ = small_t5({"a"});
  EXPECT_EQ(options().style, SpmStyle::kPlain);
  model_.charsmap = std::string("\x04\0\0\0\0\0\0\0", 8);
  EXPECT_EQ(options().style, SpmStyle::kT5);
  model_ = small_model(SpmAlgorithm::kUnigram, {"a"});
  EXPECT_EQ(options().style, SpmStyle::kPlain);
  EXPECT_THAT(added(), ElementsAre());
}

TEST_F(SpmFolder, AFolderThatSaysNothingHasWhatTransformersTakes) {
  const SpmOptions found = options(), usual = usual_options(SpmStyle::kLlama);
  EXPECT_EQ(found.bos, usual.bos);
  EXPECT_EQ(found.eos, usual.eos);
  EXPECT_TRUE(found.legacy);
  EXPECT_TRUE(found.add_prefix_space);
  EXPECT_THAT(added(), ElementsAre("<s>", "</s>", "<unk>"));
  write("config.json", {{"model_type", "t5"}});
  EXPECT_EQ(options().extra_ids, 100);
  EXPECT_THAT(added(), ElementsAre("</s>", "<unk>", "<pad>"));
}

TEST_F(SpmFolder, TheConfigurationSaysWhatIsPutAroundTexts) {
  config({{"legacy", false},
          {"add_prefix_space", false},
          {"add_bos_token", false},
          {"add_eos_token", true},
          {"eos_token", {{"content", "<end>"}}}});
  SpmOptions found = options();
  EXPECT_FALSE(found.legacy);
  EXPECT_FALSE(found.add_prefix_space);
  EXPECT_EQ(found.bos, std::nullopt);
  EXPECT_EQ(found.eos, "<end>");
  config({{"legacy", nullptr}, {"add_eos_token", nullptr}});
  found = options();
  EXPECT_TRUE(found.legacy);
  EXPECT_EQ(found.eos, std::nullopt);
  config({{"bos_token", nullptr}});
  EXPECT_THAT(refusal(), HasSubstr("add_bos_token is true, but there is no bos_token"));
  config({{"legacy", "no"}});
  EXPECT_THAT(refusal(), HasSubstr("legacy is string, want true or false"));
}

TEST_F(SpmFolder, AddedTokensComeInTheOrderOfTheirIdsAndWithTheirFlags) {
  config({{"added_tokens_decoder",
           {{"300", {{"content", "<b>"}, {"special", true}, {"lstrip", true}, {"normalized", true}}},
            {"9", {{"content", "<a>"}, {"rstrip", true}, {"single_word", true}}}}},
          {"pad_token", "<pad>"}});
  write("added_tokens.json", {{"<old>", 5}});
  write("special_tokens_map.json", {{"pad_token", "<old pad>"}});
  EXPECT_THAT(added(), ElementsAre("<a>", "<b>", "<s>", "</s>", "<unk>", "<pad>"));
  const auto tokens = options().added;
  EXPECT_EQ(tokens[0].id, 9);
  EXPECT_FALSE(tokens[0].is_special);
  EXPECT_TRUE(tokens[0].is_normalized);
  EXPECT_TRUE(tokens[0].strips_right);
  EXPECT_TRUE(tokens[0].single_word);
  EXPECT_EQ(tokens[1].id, 300);
  EXPECT_TRUE(tokens[1].is_special);
  EXPECT_TRUE(tokens[1].is_normalized);
  EXPECT_TRUE(tokens[1].strips_left);
  EXPECT_FALSE(tokens[2].is_normalized);
}

TEST_F(SpmFolder, OlderFoldersHaveTwoFilesMore) {
  config({{"pad_token", "<other>"}});
  write("special_tokens_map.json",
        {{"pad_token", "<pad>"}, {"additional_special_tokens", {"<x>", {{"content", "<y>"}, {"lstrip", true}}}}});
  write("added_tokens.json", {{"<new>", 260}, {"<earlier>", 259}});
  EXPECT_THAT(added(), ElementsAre("<earlier>", "<new>", "<s>", "</s>", "<unk>", "<pad>", "<x>", "<y>"));
  EXPECT_FALSE(options().added[0].is_special);
  EXPECT_TRUE(options().added[7].strips_left);
}

TEST_F(SpmFolder, CodeLlamaHasTokensForFillingInTheMiddle) {
  config({{"tokenizer_class", "CodeLlamaTokenizer"}, {"legacy", false}, {"eot_token", nullptr}});
  EXPECT_THAT(added(), ElementsAre("<s>", "</s>", "<unk>", test::kSpace + "<PRE>", test::kSpace + "<MID>",
                                   test::kSpace + "<SUF>"));
  EXPECT_TRUE(options().legacy);
}

TEST_F(SpmFolder, TheExtraIdsOfT5AreCountedOrGiven) {
  const Json both = {"<extra_id_0>", "<extra_id_1>"};
  config({{"tokenizer_class", "T5Tokenizer"}, {"extra_ids", 0}});
  EXPECT_EQ(options().extra_ids, 0);
  config({{"tokenizer_class", "T5Tokenizer"}, {"additional_special_tokens", both}});
  EXPECT_EQ(options().extra_ids, 2);
  config({{"tokenizer_class", "T5Tokenizer"}, {"additional_special_tokens", both}, {"extra_ids", 3}});
  EXPECT_THAT(refusal(), HasSubstr("extra_ids is 3, but 2 of them"));
  config({{"tokenizer_class", "T5Tokenizer"}, {"extra_ids", -1}});
  EXPECT_THAT(refusal(), HasSubstr("extra_ids is number, want a number of 0 to 10000"));
}

TEST_F(SpmFolder, FilesThatSayNonsenseAreNamed) {
  const auto begins = [&](const char* name) { return StartsWith((folder_ / name).string() + ": "); };
  for (const Json& value : {Json(7), Json::array()}) {
    config({{"tokenizer_class", value}});
    EXPECT_THAT(refusal(), begins("tokenizer_config.json"));
  }
  for (const Json& decoder : {Json::array(), Json{{"x", "<a>"}}, Json{{"1", nullptr}}, Json{{"1", {{"content", ""}}}},
                              Json{{"1", {{"content", "<a>"}, {"special", 1}}}}}) {
    config({{"added_tokens_decoder", decoder}});
    EXPECT_THAT(refusal(), begins("tokenizer_config.json")) << decoder;
  }
  config(Json::object());
  for (const Json& added : {Json::array(), Json{{"<a>", "5"}}, Json{{"", 5}}}) {
    write("added_tokens.json", added);
    EXPECT_THAT(refusal(), begins("added_tokens.json")) << added;
  }
}

}  // namespace
}  // namespace data::tokenizers
