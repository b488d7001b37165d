// Goal: what transformers applies over a tokenizer.json is either what the file does, or refused by name.
// Method: a small tokenizer of words, and one member after the other beside it.
#include "data/tokenizers/json_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/tokenizers/tokenizer.h"
#include "tests/data/tokenizers/small_tokenizers.h"

namespace data::tokenizers {
namespace {

using test::added_token;
using test::error_of;
using test::Json;
using test::TemporaryFolder;
using test::words;
using test::write_file;
using ::testing::AllOf;
using ::testing::HasSubstr;

class TokenizerConfig : public ::testing::Test {
 protected:
  /// The error about a tokenizer with this configuration; "" is none.
  std::string said(const Json& config) {
    write_file(folder_ / "tokenizer.json", tokenizer_.dump());
    write_file(folder_ / "tokenizer_config.json", config.dump());
    return error_of([&] { open_tokenizer(folder_.path()); });
  }

  TemporaryFolder folder_;
  Json tokenizer_ = words();
};

TEST_F(TokenizerConfig, OfTransformersIsTaken) {
  EXPECT_EQ(said({{"tokenizer_class", "PreTrainedTokenizerFast"},
                  {"clean_up_tokenization_spaces", false},
                  {"model_max_length", 1e30},
                  {"padding_side", "right"},
                  {"pad_token", "[PAD]"},
                  {"extra_special_tokens", Json::object()},
                  {"additional_special_tokens", Json::array({"[SEP]"})},
                  {"added_tokens_decoder", {{"1", added_token(1, "[CLS]")}}},
                  {"chat_template", nullptr},
                  {"backend", "tokenizers"},
                  {"is_local", true}}),
            "");
}

TEST_F(TokenizerConfig, AMemberThatNobodyKnowsIsRefused) {
  EXPECT_THAT(said({{"remove_space", true}}),
              HasSubstr("tokenizer_config.json: remove_space is true, and this program does not know whether that "
                        "changes ids; remove the member"));
  EXPECT_EQ(said({{"remove_space", nullptr}}), "");
  for (const char* member : {"split_special_tokens", "from_slow", "fix_mistral_regex"}) {
    EXPECT_THAT(said({{member, true}}), HasSubstr(std::string(member) + " is true, and this program has false only"));
    EXPECT_EQ(said({{member, false}}), "");
  }
  write_file(folder_ / "special_tokens_map.json", R"({"boundary": "a"})");
  EXPECT_THAT(said(Json::object()), HasSubstr("special_tokens_map.json: boundary is \"a\", which is no token"));
}

TEST_F(TokenizerConfig, TokensAroundATextAreThoseOfTheFile) {
  const Json named = {{"bos_token", "[CLS]"}, {"eos_token", "[SEP]"}, {"tokenizer_class", "LlamaTokenizer"}};
  const auto with = [&](Json more) {
    Json config = named;
    config.update(more);
    return said(config);
  };
  EXPECT_EQ(with({{"add_bos_token", true}, {"add_eos_token", true}}), "");
  EXPECT_EQ(with({{"tokenizer_class", "PreTrainedTokenizerFast"}, {"add_bos_token", false}}), "")
      << "both transformers take what tokenizer.json does";
  EXPECT_EQ(with({{"backend", "tokenizers"}, {"add_bos_token", false}}), "") << "as transformers 5 means its own file";
  EXPECT_THAT(with({{"add_bos_token", false}, {"add_eos_token", true}}),
              HasSubstr("add_bos_token is false, and tokenizer.json adds the token 1 before a text; load and save"));
  EXPECT_THAT(
      with({{"add_bos_token", true}}),
      HasSubstr("has no add_eos_token, which then is false for the class LlamaTokenizer, and tokenizer.json adds "
                "the token 2 after a text"));
  tokenizer_["post_processor"] = nullptr;
  EXPECT_EQ(with({{"add_bos_token", false}}), "");
  EXPECT_THAT(with({{"tokenizer_class", "GPTNeoXTokenizer"}, {"add_eos_token", true}}),
              HasSubstr("add_eos_token is true, and tokenizer.json adds no token after a text"));
  EXPECT_EQ(with({{"tokenizer_class", "GPTNeoXTokenizerFast"}}), "");
  EXPECT_THAT(
      with({{"tokenizer_class", "LlamaTokenizerFast"}}),
      HasSubstr("has no add_bos_token, which then is true for the class LlamaTokenizer, and tokenizer.json adds "
                "no token before a text"));
}

TEST_F(TokenizerConfig, AddedTokensAreThoseOfTheFileWithTheirFlags) {
  EXPECT_THAT(
      said({{"added_tokens_decoder", {{"7", added_token(7, "<tool>")}}}}),
      AllOf(HasSubstr("added_tokens_decoder.7 is {"), HasSubstr("tokenizer.json has no added token of this id")));
  EXPECT_THAT(said({{"added_tokens_decoder", {{"1", added_token(1, "[BEGIN]")}}}}),
              HasSubstr("and tokenizer.json has \"[CLS]\""));
  Json stripping = added_token(1, "[CLS]");
  stripping["lstrip"] = true;
  EXPECT_THAT(said({{"added_tokens_decoder", {{"1", stripping}}}}),
              HasSubstr("added_tokens_decoder.1.lstrip is true, and tokenizer.json has false"));
  EXPECT_THAT(said({{"mask_token", {{"content", "[SEP]"}, {"lstrip", true}}}}),
              HasSubstr("mask_token.lstrip is true, and tokenizer.json has false"));
  for (const char* list : {"additional_special_tokens", "extra_special_tokens"}) {
    EXPECT_THAT(said({{list, Json::array({"[CLS]", "<tool>"})}}),
                HasSubstr(std::string(list) + ".1 is \"<tool>\", which tokenizer.json does not have"));
  }
  EXPECT_THAT(said({{"extra_special_tokens", {{"image_token", "<image>"}}}}),
              HasSubstr("extra_special_tokens.image_token is \"<image>\""));
  EXPECT_THAT(said({{"image_token", "<image>"}}), HasSubstr("image_token is \"<image>\", which"));
  EXPECT_THAT(said({{"tokenizer_class", "T5Tokenizer"}, {"extra_ids", 2}}),
              HasSubstr("the class T5Tokenizer has 2 extra ids, and tokenizer.json has no <extra_id_0>"));
  EXPECT_EQ(said({{"tokenizer_class", "T5Tokenizer"}, {"extra_ids", 0}}), "");
}

TEST_F(TokenizerConfig, LowerCaseOfBertIsThatOfTheFile) {
  tokenizer_["normalizer"] = {{"type", "BertNormalizer"},
                              {"clean_text", true},
                              {"handle_chinese_chars", true},
                              {"strip_accents", nullptr},
                              {"lowercase", true}};
  EXPECT_EQ(said({{"tokenizer_class", "BertTokenizer"}}), "") << "true as usual";
  EXPECT_EQ(said({{"tokenizer_class", "BertTokenizer"}, {"do_lower_case", true}, {"strip_accents", true}}), "");
  EXPECT_THAT(
      said({{"tokenizer_class", "BertTokenizerFast"}, {"do_lower_case", false}}),
      HasSubstr("do_lower_case is false, by the file or by the class BertTokenizer, and tokenizer.json has true"));
  EXPECT_THAT(said({{"tokenizer_class", "BertTokenizer"}, {"strip_accents", false}}),
              HasSubstr("strip_accents is false"));
  EXPECT_THAT(said({{"tokenizer_class", "BertTokenizer"}, {"tokenize_chinese_chars", false}}),
              HasSubstr("tokenize_chinese_chars is false"));
  EXPECT_EQ(said({{"tokenizer_class", "PreTrainedTokenizerFast"}, {"do_lower_case", false}}), "")
      << "that class has no such member";
  write_file(folder_ / "config.json", R"({"model_type": "bert"})");
  EXPECT_THAT(said({{"do_lower_case", false}}), HasSubstr("do_lower_case is false")) << "the class of the model";
  std::filesystem::remove(folder_ / "config.json");
  tokenizer_["normalizer"]["lowercase"] = false;
  EXPECT_THAT(said({{"tokenizer_class", "BertTokenizer"}}), HasSubstr("do_lower_case is true, by the file or by"));
}

TEST_F(TokenizerConfig, TokensThatTransformers5PutsAroundATextAreThoseOfTheFile) {
  const Json bert = {{"tokenizer_class", "BertTokenizer"}, {"cls_token", "[CLS]"}, {"sep_token", "[SEP]"}};
  const auto with = [&](Json more) {
    Json config = bert;
    config.update(more);
    return said(config);
  };
  EXPECT_EQ(with(Json::object()), "");
  EXPECT_EQ(with({{"cls_token", nullptr}}), "");
  EXPECT_THAT(
      with({{"cls_token", "[SEP]"}}),
      HasSubstr("cls_token is \"[SEP]\", which the class BertTokenizer of transformers 5 puts before a text, and "
                "tokenizer.json adds the token 1"));
  EXPECT_THAT(with({{"sep_token", "[CLS]"}}), HasSubstr("sep_token is \"[CLS]\", which the class BertTokenizer"));
  EXPECT_EQ(with({{"tokenizer_class", "PreTrainedTokenizerFast"}, {"cls_token", "[SEP]"}}), "");
  EXPECT_EQ(said({{"tokenizer_class", "T5Tokenizer"}, {"extra_ids", 0}, {"eos_token", "[SEP]"}}), "");
  EXPECT_THAT(said({{"tokenizer_class", "T5Tokenizer"}, {"extra_ids", 0}, {"eos_token", "[CLS]"}}),
              HasSubstr("eos_token is \"[CLS]\", which the class T5Tokenizer of transformers 5 puts after a text"));
  const auto own = tokenizer_["model"]["unk_token"].get<std::string>();
  EXPECT_EQ(with({{"unk_token", own}}), "");
  EXPECT_THAT(with({{"unk_token", own == "[SEP]" ? "[CLS]" : "[SEP]"}}),
              HasSubstr("unk_token is \"[SEP]\", and the model of tokenizer.json has \"" + own + "\""));
}

TEST_F(TokenizerConfig, FlagsThatAreNullAreWhatTheyAreForTransformers) {
  const Json llama = {{"bos_token", "[CLS]"}, {"eos_token", "[SEP]"}, {"tokenizer_class", "LlamaTokenizer"}};
  Json config = llama;
  config["add_bos_token"] = nullptr;
  EXPECT_THAT(said(config), HasSubstr("add_bos_token is null, and tokenizer.json adds the token 1 before a text"));
  EXPECT_THAT(said({{"split_special_tokens", nullptr}}), HasSubstr("split_special_tokens is null, which transformers"));
  tokenizer_["normalizer"] = {{"type", "BertNormalizer"},
                              {"clean_text", true},
                              {"handle_chinese_chars", true},
                              {"strip_accents", nullptr},
                              {"lowercase", true}};
  for (const char* member : {"do_lower_case", "tokenize_chinese_chars"}) {
    EXPECT_THAT(said({{"tokenizer_class", "BertTokenizer"}, {member, nullptr}}),
                HasSubstr(std::string(member) + " is null, which transformers refuses"));
  }
  EXPECT_EQ(said({{"tokenizer_class", "BertTokenizer"}, {"strip_accents", nullptr}}), "");
  tokenizer_["post_processor"] = nullptr;
  EXPECT_EQ(said(config), "") << "null is false";
}

TEST_F(TokenizerConfig, ASpaceBeforeATextIsThatOfTheFile) {
  tokenizer_["pre_tokenizer"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  EXPECT_EQ(said({{"add_prefix_space", true}}), "");
  EXPECT_THAT(said({{"model_max_length", 9}}),
              HasSubstr("add_prefix_space is false, by the file or as it is usual, and "
                        "tokenizer.json has true"));
}

}  // namespace
}  // namespace data::tokenizers
