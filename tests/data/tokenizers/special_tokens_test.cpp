#include "data/tokenizers/json_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/tokenizers/tokenizer.h"
#include "tests/data/tokenizers/small_tokenizers.h"

namespace data::tokenizers {
namespace {

using test::error_of;
using test::Json;
using test::TemporaryFolder;
using test::words;
using test::write_file;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class SpecialTokens : public ::testing::Test {
 protected:
  SpecialTokens() { write_file(folder_ / "tokenizer.json", words().dump()); }

  void write_config(const Json& json) { write_file(config_, json.dump()); }
  void write_map(const Json& json) { write_file(map_, json.dump()); }
  Special special() { return open_tokenizer(folder_.path())->special(); }
  std::string refusal() {
    return error_of([&] { special(); });
  }

  TemporaryFolder folder_;
  std::filesystem::path config_ = folder_ / "tokenizer_config.json";
  std::filesystem::path map_ = folder_ / "special_tokens_map.json";
};

TEST_F(SpecialTokens, WithoutFilesTheUsualNamesCount) {
  EXPECT_EQ(special(), (Special{.pad = 3, .unk = 0, .cls = 1, .sep = 2}));
}

TEST_F(SpecialTokens, AUsualNameThatIsAnOrdinaryPieceDoesNotCount) {
  Json json = words();
  json["model"]["vocab"]["</s>"] = 7;
  write_file(folder_ / "tokenizer.json", json.dump());
  EXPECT_EQ(special().eos, std::nullopt);
}

TEST_F(SpecialTokens, TheConfigurationNamesThemAsTextsOrObjects) {
  write_config(
      {{"eos_token", "muster"}, {"bos_token", {{"content", "trains"}, {"lstrip", false}}}, {"pad_token", nullptr}});
  EXPECT_EQ(special(), (Special{.bos = 6, .eos = 5, .unk = 0, .cls = 1, .sep = 2}));
}

TEST_F(SpecialTokens, TheMapCountsOnlyWhereTheConfigurationListsNoAddedTokens) {
  write_config({{"eos_token", "muster"}});
  write_map({{"eos_token", "trains"}, {"mask_token", "a"}});
  EXPECT_EQ(special().eos, 6);
  EXPECT_EQ(special().mask, 4);
  write_config({{"eos_token", "muster"}, {"added_tokens_decoder", Json::object()}});
  EXPECT_EQ(special().eos, 5);
  EXPECT_EQ(special().mask, std::nullopt);
}

TEST_F(SpecialTokens, ATokenThatIsNoPieceIsNamedWithItsFile) {
  write_config({{"pad_token", "[GONE]"}});
  EXPECT_THAT(refusal(),
              StartsWith(config_.string() + ": pad_token is \"[GONE]\", which tokenizer.json does not have; "));
}

TEST_F(SpecialTokens, FilesThatAreNoObjectsOfTextsAreRefused) {
  for (const char* text : {"", "[]", "{\"pad_token\":", "\xFF"}) {
    write_file(config_, text);
    EXPECT_THAT(refusal(), StartsWith(config_.string() + ": want a JSON object")) << text;
  }
  write_config(Json::object());
  for (const Json& value : {Json(3), Json::array(), Json::object(), Json{{"content", 3}}}) {
    write_map({{"pad_token", value}});
    EXPECT_THAT(refusal(), StartsWith(map_.string() + ": pad_token is ")) << value;
  }
  std::filesystem::remove(map_);
  std::filesystem::create_directory(map_);
  EXPECT_THAT(refusal(), StartsWith(map_.string() + ": not a file that can be read"));
}

TEST_F(SpecialTokens, AFileThatIsTooLargeIsNotRead) {
  write_file(config_, "");
  std::filesystem::resize_file(config_, (64U << 20) + 1);
  EXPECT_THAT(refusal(), HasSubstr("67108865 bytes, more than the 67108864"));
}

}  // namespace
}  // namespace data::tokenizers
