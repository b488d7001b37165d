// Goal: whatever a tokenizer.json holds, the answer is a tokenizer or an error that names the file.
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
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class HostileFiles : public ::testing::Test {
 protected:
  /// The error after the file's path and a colon. Anything else fails.
  std::string refusal(std::string_view text) {
    write_file(file_, text);
    const std::string error = error_of([&] { open_tokenizer(folder_.path()); });
    EXPECT_THAT(error, StartsWith(file_.string() + ": "));
    return error.substr(std::min(error.size(), file_.string().size() + 2));
  }
  std::string refusal(const Json& json) { return refusal(std::string_view(json.dump())); }

  TemporaryFolder folder_;
  std::filesystem::path file_ = folder_ / "tokenizer.json";
};

TEST_F(HostileFiles, WhatIsNoJsonIsRefused) {
  for (const std::string_view text :
       {std::string_view(), std::string_view("\0\0\0", 3), std::string_view("{"), std::string_view("\xFF\xFE{}"),
        std::string_view("[1, 2]"), std::string_view("{} x")}) {
    EXPECT_THAT(refusal(text), StartsWith("not a usable tokenizer.json")) << text;
  }
}

TEST_F(HostileFiles, JsonThatIsNoTokenizerIsRefusedWithTheReason) {
  EXPECT_THAT(refusal(Json::object()), AllOf(StartsWith("not a usable tokenizer.json"), HasSubstr("Model missing")));
  EXPECT_THAT(refusal(Json{{"model_type", "llama"}, {"vocab_size", 32000}}), StartsWith("not a usable tokenizer.json"));
  Json json = words();
  json["version"] = "2.0";
  EXPECT_THAT(refusal(json), HasSubstr("Unknown tokenizer version '2.0'"));
}

TEST_F(HostileFiles, EveryCutOfAGoodFileIsRefused) {
  const std::string good = words().dump();
  for (std::size_t bytes = 0; bytes < good.size(); bytes += 7) refusal(std::string_view(good).substr(0, bytes));
}

TEST_F(HostileFiles, NestingWithoutAnEndIsRefused) {
  refusal(std::string_view(std::string(1'000'000, '[')));
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += R"({"type":"Sequence","normalizers":[)";
  refusal(std::string_view(R"({"normalizer":)" + deep));
}

TEST_F(HostileFiles, AFileThatIsTooLargeIsNotRead) {
  write_file(file_, "");
  std::filesystem::resize_file(file_, (256U << 20) + 1);
  EXPECT_EQ(error_of([&] { open_tokenizer(folder_.path()); }),
            file_.string() + ": 268435457 bytes, more than the 268435456 that such a file may have");
}

TEST_F(HostileFiles, AnIdThatIsNoNumberOrTooLargeIsRefused) {
  for (const Json& id : {Json(-1), Json(1.5), Json(4'294'967'296), Json("4"), Json(nullptr)}) {
    Json json = words();
    json["model"]["vocab"]["a"] = id;
    refusal(json);
  }
}

TEST_F(HostileFiles, TheLargestIdThereIsCostsNoMemory) {
  Json json = words();
  json["model"]["vocab"]["a"] = 4'294'967'295;
  write_file(file_, json.dump());
  EXPECT_EQ(open_tokenizer(folder_.path())->vocabulary(), 4'294'967'296);
}

TEST_F(HostileFiles, AnEmptyVocabularyIsRefused) {
  const Json model = {{"type", "BPE"}, {"vocab", Json::object()}, {"merges", Json::array()}};
  EXPECT_EQ(refusal(Json{{"version", "1.0"}, {"model", model}}), "an empty vocabulary; is it the right file?");
}

TEST_F(HostileFiles, AModelThatMergesAtRandomIsRefused) {
  Json json = Json::parse(bytes_tokenizer_json());
  json["model"]["dropout"] = 0.1;
  EXPECT_THAT(refusal(json), HasSubstr("set \"dropout\" to null"));
  json["model"]["dropout"] = 0.0;
  write_file(file_, json.dump());
  EXPECT_EQ(open_tokenizer(folder_.path())->vocabulary(), 257);
}

TEST_F(HostileFiles, APostProcessorThatLeavesTheTextOutIsRefused) {
  Json json = words();
  json["post_processor"]["single"].erase(1);
  EXPECT_THAT(refusal(json), StartsWith("gives no id for any of the texts that were tried"));
}

// A charsmap is the bytes of a trie, its size before it, and then a text. This one's trie leads out of itself.
constexpr const char* kTrieThatLeadsOut = "BAAAAP////8=";

TEST_F(HostileFiles, APanicWhileItOpensIsAnError) {
  Json json = words();
  json["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "no base64"}};
  EXPECT_THAT(refusal(json), AllOf(StartsWith("not a usable tokenizer.json"),
                                   HasSubstr("a panic in the crate tokenizers: Precompiled")));
}

TEST_F(HostileFiles, APanicWhileItEncodesIsAnError) {
  Json json = words();
  json["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", kTrieThatLeadsOut}};
  EXPECT_THAT(refusal(json), AllOf(StartsWith("cannot encode a text"),
                                   HasSubstr("a panic in the crate tokenizers: index out of bounds")));
}

TEST_F(HostileFiles, ATextThatCannotBeEncodedIsAnErrorAndTheNextOneWorks) {
  Json json = words();
  json["model"]["unk_token"] = "[GONE]";
  write_file(file_, json.dump());
  const auto tokenizer = open_tokenizer(folder_.path());
  const auto refused = AllOf(StartsWith(file_.string() + ": cannot encode a text: "), HasSubstr("[UNK]"));
  EXPECT_THAT(error_of([&] { tokenizer->encode("gold", false); }), refused);
  const std::vector<std::string> texts{"muster", "gold", "a"};
  EXPECT_THAT(error_of([&] { tokenizer->encode_batch(texts, false); }), refused);
  EXPECT_EQ(tokenizer->encode("muster", false), Tokenizer::Ids{5});
}

}  // namespace
}  // namespace data::tokenizers
