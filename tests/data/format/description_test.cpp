// Goal: data.json says all that a training must know of its data, and one that lies or is damaged is refused by member.
#include "data/format/dataset.h"

#include <gmock/gmock.h>

#include "tests/data/format/samples.h"
#include "tests/temporary_folder.h"

namespace data::format {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const auto at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

class DescriptionFile : public ::testing::Test {
 protected:
  DescriptionFile() {
    description_ =
        describe_tokens({write_tokens(folder_ / file_name("train", 0)), write_tokens(folder_ / file_name("train", 1))});
    write_description(folder_.path(), description_);
  }
  std::string fingerprint_with(const std::function<void(Description&)>& change) const {
    Description other = description_;
    change(other);
    return fingerprint_of(folder_.path(), other);
  }
  std::string error_with(const std::string& what, const std::string& by) const {
    test::write_file(folder_ / "data.json", replaced(description_.text, what, by));
    return error_of([&] { read_description(folder_.path()); });
  }

  const test::TemporaryFolder folder_{test::memory_folder()};
  Description description_;
};

TEST_F(DescriptionFile, ComesBackWhole) {
  const auto read = read_description(folder_.path());
  EXPECT_EQ(read.kind, Kind::kTokens);
  EXPECT_EQ(read.fingerprint, description_.fingerprint);
  EXPECT_EQ(read.source, "three records");
  EXPECT_EQ(read.made_by, "muster-data 0.1.0");
  EXPECT_EQ(read.tokenizer_kind, "bytes");
  EXPECT_EQ(read.tokenizer_sha256, base::hex(kTokenizer));
  EXPECT_EQ(read.vocabulary, 300);
  EXPECT_EQ(read.prefix, std::vector<std::uint32_t>{1});
  EXPECT_TRUE(read.suffix.empty());
  EXPECT_EQ(read.pad, std::nullopt);
  EXPECT_EQ(read.eos, 2);
  EXPECT_EQ(read.fields, std::vector<std::string>{"text"});
  EXPECT_EQ(read.options, R"({"seed":1,"validation":0.05})");
  EXPECT_EQ(read.text, description_.text);
  EXPECT_EQ(read.text, test::read_file(folder_ / "data.json"));
  const auto& train = read.splits.at("train");
  EXPECT_EQ(train.records, 6);
  EXPECT_EQ(train.elements, 10);
  EXPECT_EQ(train.longest, 3);
  ASSERT_EQ(train.files.size(), 2u);
  EXPECT_EQ(train.files[1].name, "train-00001.mdat");
  EXPECT_EQ(train.files[1].bytes, std::filesystem::file_size(folder_ / "train-00001.mdat"));
  EXPECT_EQ(train.files[1].checksum, File::open(folder_ / "train-00001.mdat").info().checksum);
}

TEST_F(DescriptionFile, OfImagesHasNoTokenizer) {
  const test::TemporaryFolder folder;
  Writer writer(folder / file_name("train", 0), Kind::kImages, 0, {});
  const auto rgb = pixels_of(1, 1, 0);
  writer.add(Image{rgb, 1, 1}, 1);
  Description images;
  images.kind = Kind::kImages;
  images.labels = {"cat", "d\"og\xc3\xa9"};
  images.fields = {"image"};
  images.splits["train"].files = {writer.finish()};
  write_description(folder.path(), images);
  EXPECT_THAT(images.text, HasSubstr("\"tokenizer\": null"));
  EXPECT_EQ(read_description(folder.path()).labels, images.labels);
}

TEST_F(DescriptionFile, EqualDataHaveOneFingerprintWhereverTheyAre) {
  const test::TemporaryFolder elsewhere;
  auto other = describe_tokens(
      {write_tokens(elsewhere / file_name("train", 0)), write_tokens(elsewhere / file_name("train", 1))});
  other.source = "the same from another place";
  write_description(elsewhere.path(), other);
  EXPECT_EQ(other.fingerprint, description_.fingerprint);
  EXPECT_THAT(other.fingerprint, StartsWith("sha256:"));
  EXPECT_EQ(other.fingerprint.size(), 71u);
}

TEST_F(DescriptionFile, EveryDifferenceThatATrainingSeesChangesTheFingerprint) {
  const std::vector<std::function<void(Description&)>> changes = {
      [](auto& d) { d.kind = Kind::kLabelled; },
      [](auto& d) { d.tokenizer_sha256 = base::hex(base::sha256("another")); },
      [](auto& d) { d.prefix = {2}; },
      [](auto& d) { std::swap(d.prefix, d.suffix); },
      [](auto& d) { d.eos = 3; },
      [](auto& d) { std::swap(d.bos, d.eos); },
      [](auto& d) { d.labels = {"a"}; },
      [](auto& d) {
        d.labels = {"a", "b"};
      },
      [](auto& d) { d.labels = {"ab"}; },
      [](auto& d) {
        d.labels = {"ab", "c"};
      },
      [](auto& d) {
        d.labels = {"a", "bc"};
      },
      [](auto& d) { d.splits["train"].files.pop_back(); },
      [](auto& d) { d.splits["validation"] = d.splits["train"]; },
      [](auto& d) {
        auto& train = d.splits["train"];
        d.splits["validation"].files = {train.files.back()};
        train.files.pop_back();
      }};
  std::vector<std::string> seen = {description_.fingerprint};
  for (const auto& change : changes) {
    const auto fingerprint = fingerprint_with(change);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), fingerprint), 0) << seen.size();
    seen.push_back(fingerprint);
  }
  EXPECT_EQ(fingerprint_with([](auto& d) { d.source = "elsewhere"; }), description_.fingerprint);
  // Another token, and another vocabulary with the same tokens.
  Writer writer(folder_ / file_name("train", 1), Kind::kTokens, 300, kTokenizer);
  writer.add({Tokens{1, 2, 299}});
  writer.add({Tokens{}});
  writer.add({Tokens{7, 9}});
  writer.finish();
  EXPECT_EQ(std::count(seen.begin(), seen.end(), fingerprint_with([](auto&) {})), 0);
  write_tokens(folder_ / file_name("train", 1), 301);
  EXPECT_EQ(std::count(seen.begin(), seen.end(), fingerprint_with([](auto&) {})), 0);
}

TEST_F(DescriptionFile, ChecksumsOfFilesTellHeadersApart) {
  // With its own checksum behind it, any header would leave the same CRC.
  const auto narrow = write_tokens(folder_ / "a", 300), wider = write_tokens(folder_ / "b", 301);
  EXPECT_EQ(File::open(folder_ / "a").checksums(), File::open(folder_ / "b").checksums());
  EXPECT_NE(narrow.checksum, wider.checksum);
}

TEST_F(DescriptionFile, WithoutItAFolderIsUnfinished) {
  std::filesystem::remove(folder_ / "data.json");
  EXPECT_EQ(error_of([&] { read_description(folder_.path()); }),
            folder_.path().string() +
                " has no data.json: it is no prepared data, or unfinished; run the same `muster "
                "data prepare` again to go on");
}

TEST_F(DescriptionFile, EveryTruncationIsRefused) {
  const auto text = description_.text;
  for (std::size_t bytes = 0; bytes + 1 < text.size(); ++bytes) {  // the last byte is the end of the line
    test::write_file(folder_ / "data.json", text.substr(0, bytes));
    ASSERT_THAT(error_of([&] { read_description(folder_.path()); }),
                AllOf(StartsWith((folder_ / "data.json").string()), HasSubstr("prepare the data again")));
  }
}

TEST_F(DescriptionFile, WhatIsWrongIsNamedWithItsValue) {
  EXPECT_EQ(
      error_with("\"kind\": \"tokens\"", "\"kind\": \"poems\""),
      (folder_ / "data.json").string() +
          ": kind is \"poems\", not tokens, pairs, labelled or images; remove the folder and prepare the data again");
  EXPECT_THAT(error_with("\"format\": 1", "\"format\": 2"), HasSubstr("format is 2, not 1, the format that this"));
  EXPECT_THAT(error_with("\"vocabulary\": 300", "\"vocabulary\": 0"),
              HasSubstr("tokenizer.vocabulary is 0, not an integer from 1 to 4294967296"));
  EXPECT_THAT(error_with("\"vocabulary\": 300", "\"vocabulary\": \"300\""),
              HasSubstr("tokenizer.vocabulary is \"300\""));
  EXPECT_THAT(error_with("\"eos\": 2", "\"eos\": 300"),
              HasSubstr("tokenizer.eos is 300, not an integer from 0 to 299"));
  EXPECT_THAT(error_with("\"eos\": 2", "\"end\": 2"), HasSubstr("tokenizer has no \"eos\""));
  EXPECT_THAT(error_with("\"labels\": []", "\"labels\": [\"a\"]"), HasSubstr("labels is [\"a\"], not empty"));
  EXPECT_THAT(error_with("\"text\"\n", "\"text\", \"more\"\n"),
              HasSubstr("fields is [\"text\",\"more\"], not 1 names"));
  EXPECT_THAT(error_with("sha256:", "sha256:0"), HasSubstr("fingerprint is \"sha256:0"));
  EXPECT_THAT(error_with("train-00001.mdat", "../../secret"),
              HasSubstr("splits.train.files[1].name is \"../../secret\", not \"train-00001.mdat\""));
  EXPECT_THAT(error_with("\"train\": {", "\"../train\": {"), HasSubstr("splits has the name \"../train\""));
  EXPECT_THAT(error_with("\"longest\": 3", "\"longest\": 4294967296"), HasSubstr("splits.train.longest is 4294967296"));
  EXPECT_THAT(error_with("{", "["), HasSubstr("JSON, byte"));
}

TEST_F(DescriptionFile, IsNotWrittenWhereItWouldBeRefusedOrIsNotOfTheFiles) {
  const auto before = test::read_file(folder_ / "data.json");
  const auto error_of_writing = [&](const std::function<void(Description&)>& change) {
    Description other = description_;
    change(other);
    return error_of([&] { write_description(folder_.path(), other); });
  };
  EXPECT_THAT(error_of_writing([](auto& d) { d.fields.clear(); }), HasSubstr("data.json: fields is [], not 1 names"));
  EXPECT_THAT(error_of_writing([](auto& d) { d.source = "\xff"; }), HasSubstr("string is not UTF-8"));
  EXPECT_THAT(error_of_writing([](auto& d) { d.options = "[]"; }), HasSubstr("options is [], not an object"));
  EXPECT_THAT(error_of_writing([](auto& d) { d.splits["train"].files[1].checksum ^= 1; }),
              HasSubstr("train-00001.mdat: another file than the one that was written"));
  EXPECT_EQ(test::read_file(folder_ / "data.json"), before);
}

}  // namespace
}  // namespace data::format
