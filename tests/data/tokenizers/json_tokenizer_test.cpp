#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "base/checksum.h"
#include "data/tokenizers/tokenizer.h"
#include "tests/data/tokenizers/small_tokenizers.h"

namespace data::tokenizers {
namespace {

using Ids = Tokenizer::Ids;
using test::error_of;
using test::Json;
using test::TemporaryFolder;
using test::words;
using test::write_file;

std::shared_ptr<const Tokenizer> opened(const TemporaryFolder& folder, const Json& json) {
  write_file(folder / "tokenizer.json", json.dump());
  return open_tokenizer(folder.path());
}

TEST(JsonTokenizer, TextBecomesIdsAndBack) {
  const TemporaryFolder folder;
  const auto tokenizer = opened(folder, words());
  EXPECT_EQ(tokenizer->encode("Muster trains  gold", false), (Ids{5, 6, 0}));
  EXPECT_EQ(tokenizer->encode("Muster trains", true), (Ids{1, 5, 6, 2}));
  EXPECT_EQ(tokenizer->encode("", false), Ids{});
  EXPECT_EQ(tokenizer->encode("", true), (Ids{1, 2}));
  EXPECT_EQ(tokenizer->decode(Ids{1, 5, 6, 2}, true), "muster trains");
  EXPECT_EQ(tokenizer->decode(Ids{1, 5, 6, 2}, false), "[CLS] muster trains [SEP]");
  EXPECT_EQ(tokenizer->decode(Ids{5, 77, 4'000'000'000}, false), "muster");
  EXPECT_EQ(tokenizer->decode({}, false), "");
}

TEST(JsonTokenizer, ItTellsWhatItIs) {
  const TemporaryFolder folder;
  const auto tokenizer = opened(folder, words());
  EXPECT_EQ(tokenizer->kind(), "tokenizer.json");
  EXPECT_EQ(tokenizer->vocabulary(), 7);
  EXPECT_EQ(tokenizer->prefix(), Ids{1});
  EXPECT_EQ(tokenizer->suffix(), Ids{2});
  EXPECT_EQ(tokenizer->sha256(), base::sha256(words().dump()));
  EXPECT_EQ(tokenizer->piece(6), "trains");
  EXPECT_EQ(error_of([&] { tokenizer->piece(7); }),
            (folder / "tokenizer.json").string() + ": no such piece: no piece has the id 7");
}

TEST(JsonTokenizer, TheVocabularyReachesToTheLargestId) {
  const TemporaryFolder folder;
  Json json = words();
  json["model"]["vocab"]["far"] = 1000;
  EXPECT_EQ(opened(folder, json)->vocabulary(), 1001);
  json = words();
  json["added_tokens"].push_back(test::added_token(7, "<new>", false));
  EXPECT_EQ(opened(folder, json)->vocabulary(), 8);
}

TEST(JsonTokenizer, AFileIsOpenedByItsOwnNameToo) {
  const TemporaryFolder folder;
  write_file(folder / "mine.json", words().dump());
  EXPECT_EQ(open_tokenizer(folder / "mine.json")->encode("a", true), (Ids{1, 4, 2}));
}

TEST(JsonTokenizer, ABatchGivesWhatTheSingleTextsGive) {
  const TemporaryFolder folder;
  const auto tokenizer = opened(folder, words());
  std::vector<std::string> texts{"", "a", "muster\xFF", std::string("a\0a", 3), "trains muster a a"};
  for (int i = 0; i < 200; ++i) texts.push_back(std::string(static_cast<std::size_t>(i) % 7, 'a') + " muster");
  for (const bool with_special : {false, true}) {
    const auto batch = tokenizer->encode_batch(texts, with_special);
    ASSERT_EQ(batch.size(), texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(batch[i], tokenizer->encode(texts[i], with_special)) << i;
  }
  EXPECT_EQ(tokenizer->encode_batch({}, true), std::vector<Ids>{});
}

TEST(JsonTokenizer, TheFilesLimitsAndPaddingAreNotUsed) {
  const TemporaryFolder folder;
  Json json = words();
  json["truncation"] = {{"direction", "Right"}, {"max_length", 3}, {"strategy", "LongestFirst"}, {"stride", 0}};
  json["padding"] = {
      {"strategy", {{"Fixed", 6}}}, {"direction", "Right"}, {"pad_to_multiple_of", nullptr}, {"pad_id", 3},
      {"pad_type_id", 0},           {"pad_token", "[PAD]"}};
  const auto tokenizer = opened(folder, json);
  EXPECT_EQ(tokenizer->encode("a a a a", true), (Ids{1, 4, 4, 4, 4, 2}));
  EXPECT_EQ(tokenizer->encode("a", true), (Ids{1, 4, 2}));
  EXPECT_EQ(tokenizer->encode_batch(std::vector<std::string>{"a a a a", "a"}, false),
            (std::vector<Ids>{{4, 4, 4, 4}, {4}}));
}

TEST(JsonTokenizer, WhatIsNotUtf8IsReadAsTheReplacementCharacter) {
  const TemporaryFolder folder;
  Json json = words();
  json["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"String", ""}}}, {"behavior", "Isolated"}, {"invert", false}};
  json["model"]["vocab"]["\xEF\xBF\xBD"] = 7;
  const auto tokenizer = opened(folder, json);
  EXPECT_EQ(tokenizer->encode("a\xE2\x82"
                              "a",
                              false),
            (Ids{4, 7, 4}));
  EXPECT_EQ(tokenizer->encode_batch(std::vector<std::string>{"\xED\xA0\x80"}, false), (std::vector<Ids>{{7, 7, 7}}));
}

TEST(JsonTokenizer, ThreadsMayEncodeAndDecodeAtTheSameTime) {
  const TemporaryFolder folder;
  write_file(folder / "tokenizer.json", bytes_tokenizer_json());
  const auto tokenizer = open_tokenizer(folder.path());
  const auto bytes = open_tokenizer("bytes");
  std::vector<std::string> failures(8);
  std::vector<std::jthread> threads;
  for (std::size_t t = 0; t < failures.size(); ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < 200; ++i) {
        const std::string text = "thread " + std::to_string(t) + " text " + std::to_string(i * t);
        const auto ids = tokenizer->encode(text, true);
        const std::vector<std::string> both{text, text};
        if (ids != bytes->encode(text, true) || tokenizer->decode(ids, true) != text ||
            tokenizer->encode_batch(both, true) != std::vector<Ids>{ids, ids}) {
          failures[t] = text;
        }
        // Errors are those of the thread's own calls.
        const auto id = static_cast<std::uint32_t>(1000 + t);
        if (error_of([&] { tokenizer->piece(id); }).find("id " + std::to_string(id)) == std::string::npos) {
          failures[t] = "error of " + text;
        }
      }
    });
  }
  threads.clear();
  EXPECT_THAT(failures, ::testing::Each(""));
}

TEST(BytesAsJson, TheFileGivesTheSameIdsAndTextsAsTheByteVocabulary) {
  const TemporaryFolder folder;
  write_file(folder / "tokenizer.json", bytes_tokenizer_json());
  const auto json = open_tokenizer(folder.path());
  const auto bytes = open_tokenizer("bytes");
  EXPECT_EQ(json->vocabulary(), bytes->vocabulary());
  EXPECT_EQ(json->special(), bytes->special());
  EXPECT_EQ(json->prefix(), bytes->prefix());
  EXPECT_EQ(json->suffix(), bytes->suffix());
  for (std::uint32_t id = 0; id <= 256; ++id) EXPECT_EQ(json->piece(id), bytes->piece(id)) << id;
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    Ids ids(random() % 40);
    for (auto& id : ids) id = random() % 4 == 0 ? random() % 257 : 0x20 + random() % 0x60;
    for (const bool skip : {false, true}) EXPECT_EQ(json->decode(ids, skip), bytes->decode(ids, skip)) << i;
    const std::string text = bytes->decode(ids, true);
    EXPECT_EQ(json->encode(text, true), bytes->encode(text, true)) << i;
  }
  EXPECT_EQ(json->encode("a<|end|>", true), (Ids{'a', 256}));
}

}  // namespace
}  // namespace data::tokenizers
