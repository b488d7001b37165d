// Goal: a damaged file is refused and never read beyond its bounds.
// Method: small files of every kind, cut at every place and changed at every byte; headers that lie and have a checksum
// that fits.
#include <gmock/gmock.h>

#include <cstring>

#include "base/checksum.h"
#include "tests/data/format/samples.h"
#include "tests/temporary_folder.h"

namespace data::format {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string tokens_file() {
  const test::TemporaryFolder folder(test::memory_folder());
  write_tokens(folder / "f");
  return test::read_file(folder / "f");
}

std::string labelled_file() {
  const test::TemporaryFolder folder(test::memory_folder());
  write_labelled(folder / "f", {1, 0, 3});
  return test::read_file(folder / "f");
}

std::string images_file() {
  const test::TemporaryFolder folder(test::memory_folder());
  Writer writer(folder / "f", Kind::kImages, 0, {});
  const auto rgb = pixels_of(2, 5, 10);
  writer.add(Image{rgb, 2, 5}, 4);
  writer.finish();
  return test::read_file(folder / "f");
}

/// The error that open() and then verify() tell of a file with these bytes.
class Reading {
 public:
  std::string error_of(const std::string& bytes) const {
    std::filesystem::remove(folder_ / "f");
    test::write_file(folder_ / "f", bytes);
    opened_ = false;
    return data::format::error_of([&] {
      const auto file = File::open(folder_ / "f");
      opened_ = true;
      file.verify();
    });
  }
  bool opened() const { return opened_; }
  std::string start() const { return (folder_ / "f").string() + ": "; }

 private:
  test::TemporaryFolder folder_{test::memory_folder()};
  mutable bool opened_ = false;
};

template <class Number>
std::string with(std::string bytes, std::size_t at, Number number) {
  std::memcpy(bytes.data() + at, &number, sizeof number);
  return bytes;
}

/// With checksums that fit: of the header, and of the one block.
std::string sealed(std::string bytes) {
  const std::size_t sums = bytes.size() - 4;
  bytes = with(std::move(bytes), sums, base::crc32c(std::string_view(bytes).substr(4096, sums - 4096)));
  return with(bytes, 124, base::crc32c(std::string_view(bytes).substr(0, 124)));
}

TEST(Damage, SealingKeepsAWholeFile) {
  const Reading reading;
  for (const auto& whole : {tokens_file(), labelled_file(), images_file()}) {
    EXPECT_EQ(sealed(whole), whole);
    EXPECT_EQ(reading.error_of(whole), "no error");
  }
}

TEST(Damage, EveryTruncationIsRefusedWithBothLengths) {
  const Reading reading;
  for (const auto& whole : {tokens_file(), labelled_file(), images_file()}) {
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
      const auto error = reading.error_of(whole.substr(0, bytes));
      ASSERT_FALSE(reading.opened());
      ASSERT_THAT(error, AllOf(StartsWith(reading.start() + "it is truncated ("), HasSubstr("prepare the data again")));
      const auto both = "want " + std::to_string(whole.size()) + " bytes, has " + std::to_string(bytes) + ")";
      ASSERT_THAT(error, HasSubstr(bytes < 128 ? std::to_string(bytes) + " bytes, less than a header" : both));
    }
    EXPECT_THAT(reading.error_of(whole + "x"), HasSubstr("it is too long (want " + std::to_string(whole.size())));
  }
}

TEST(Damage, EveryBitOfTheHeaderCounts) {
  const Reading reading;
  const auto whole = tokens_file();
  for (std::size_t bit = 0; bit < 128 * 8; ++bit) {
    auto bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    ASSERT_THAT(reading.error_of(bytes), StartsWith(reading.start())) << bit;
    ASSERT_FALSE(reading.opened()) << bit;
  }
  for (std::size_t at = 128; at < 4096; ++at) {
    auto bytes = whole;
    bytes[at] = static_cast<char>(at | 1);
    ASSERT_THAT(reading.error_of(bytes), HasSubstr("byte " + std::to_string(at) + " behind its header is not zero"));
    ASSERT_FALSE(reading.opened()) << at;
  }
}

TEST(Damage, EveryByteOfTheContentsCounts) {
  const Reading reading;
  for (const auto& whole : {tokens_file(), labelled_file(), images_file()}) {
    int by_block = 0;
    for (std::size_t at = 4096; at < whole.size(); ++at) {
      auto bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ 0x41);
      const auto error = reading.error_of(bytes);
      ASSERT_THAT(error, StartsWith(reading.start())) << at;
      if (!reading.opened()) continue;  // index and labels are read at once
      const auto last = std::to_string(whole.size() - 5);
      ASSERT_THAT(error, HasSubstr("block 0 (bytes 4096 to " + last + ") does not match its checksum")) << at;
      ++by_block;
    }
    EXPECT_GE(by_block, 10);
  }
}

TEST(Damage, HeadersThatLieAreRefusedByTheValueThatIsWrong) {
  const Reading reading;
  const auto whole = tokens_file();
  const auto lie = [&](std::size_t at, auto number) { return reading.error_of(sealed(with(whole, at, number))); };
  EXPECT_THAT(lie(8, std::uint32_t{2}), HasSubstr("its version is 2, not 1"));
  EXPECT_THAT(lie(12, std::uint32_t{5}), HasSubstr("its kind is 5, not 1 to 4"));
  EXPECT_THAT(lie(12, std::uint32_t{0}), HasSubstr("its kind is 0, not 1 to 4"));
  EXPECT_THAT(lie(12, std::uint32_t{2}), HasSubstr("its fields a record is 1, not 2"));
  EXPECT_THAT(lie(12, std::uint32_t{4}), HasSubstr("its vocabulary is 300, not 0"));
  EXPECT_THAT(lie(16, std::uint32_t{4}), HasSubstr("its bytes an element is 4, not 2"));
  EXPECT_THAT(lie(24, ~std::uint64_t{0}), HasSubstr("records, more than 2^40"));
  EXPECT_THAT(lie(24, std::uint64_t{1} << 40), HasSubstr("its offset of labels"));
  EXPECT_THAT(lie(32, ~std::uint64_t{0}), HasSubstr("elements, more than 2^46"));
  EXPECT_THAT(lie(32, std::uint64_t{1} << 46), HasSubstr("its offset of the index"));
  EXPECT_THAT(lie(40, std::uint64_t{0}), HasSubstr("its vocabulary is 0, not 1 to 2^32"));
  EXPECT_THAT(lie(40, ~std::uint64_t{0}), HasSubstr("not 1 to 2^32"));
  EXPECT_THAT(lie(40, std::uint64_t{65'537}), HasSubstr("its bytes an element is 2, not 4"));
  for (const auto& [at, what] : std::vector<std::pair<std::size_t, std::string>>{
           {48, "elements"}, {56, "the index"}, {64, "labels"}, {72, "checksums"}}) {
    for (const auto offset : {std::uint64_t{0}, std::uint64_t{4098}, ~std::uint64_t{0}}) {
      EXPECT_THAT(lie(at, offset), HasSubstr("its offset of " + what + " is " + std::to_string(offset)));
    }
  }
  EXPECT_THAT(lie(80, std::uint64_t{4096}), HasSubstr("its announced length is 4096"));
  EXPECT_THAT(lie(120, std::uint32_t{0}), HasSubstr("its bytes a checksum is 0, not 16777216"));
  EXPECT_THAT(reading.error_of(sealed(with(images_file(), 88, 'x'))),
              HasSubstr("it holds images and names a tokenizer"));
}

TEST(Damage, ContentsThatLieAreRefusedByRecord) {
  const Reading reading;
  const auto tokens = tokens_file();  // elements 4096, index 4112: 0 3 3 5
  const auto lie = [&](const std::string& whole, std::size_t at, auto number) {
    return reading.error_of(sealed(with(whole, at, number)));
  };
  EXPECT_THAT(lie(tokens, 4112, std::uint64_t{1}), HasSubstr("its index begins with element 1, not 0"));
  EXPECT_THAT(lie(tokens, 4120, std::uint64_t{4}), HasSubstr("its index runs backwards at record 1"));
  EXPECT_THAT(lie(tokens, 4120, ~std::uint64_t{0}), HasSubstr("its index runs backwards at record 1"));
  EXPECT_THAT(lie(tokens, 4136, std::uint64_t{6}), HasSubstr("its index ends with element 6, not 5"));
  EXPECT_FALSE(reading.opened());
  EXPECT_THAT(lie(tokens, 4096, std::uint16_t{300}), HasSubstr("block 0 holds a token beyond the vocabulary of 300"));
  EXPECT_TRUE(reading.opened());
  EXPECT_THAT(lie(labelled_file(), 4148, std::int32_t{-1}), HasSubstr("record 1 has the label -1"));
  const auto images = images_file();  // 30 bytes, index 4128, labels 4144
  EXPECT_THAT(lie(images, 4144, std::uint16_t{3}), HasSubstr("record 0 is an image of 3 x 5 pixels with 30 bytes"));
  EXPECT_THAT(lie(images, 4146, std::uint16_t{65'535}), HasSubstr("record 0 is an image of 2 x 65535 pixels"));
  EXPECT_THAT(lie(images, 4148, std::int32_t{-2}), HasSubstr("record 0 has the label -2"));
}

TEST(Damage, IsNamedByBlock) {
  const test::TemporaryFolder folder(test::memory_folder());
  const auto path = folder / "f";
  {
    Writer writer(path, Kind::kTokens, 100'000, kTokenizer);
    Tokens ids(std::size_t{1} << 20);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::uint32_t>(i % 99'991);
    for (int record = 0; record < 9; ++record) writer.add({ids});  // 4 MiB each
    writer.finish();
  }
  const auto whole = File::open(path);
  ASSERT_EQ(whole.blocks(), 3u);
  whole.verify();
  EXPECT_THAT(error_of([&] { whole.verify(2, 2); }), HasSubstr("has 3 blocks"));

  auto bytes = test::read_file(path);
  const std::size_t block_one = 4096 + (std::size_t{16} << 20);
  bytes[block_one + 5] = static_cast<char>(bytes[block_one + 5] ^ 1);
  std::filesystem::remove(path);
  test::write_file(path, bytes);
  const auto file = File::open(path);
  file.verify(0, 1);
  file.verify(2, 1);
  EXPECT_EQ(error_of([&] { file.verify(1, 1); }), path.string() +
                                                      ": block 1 (bytes 16781312 to 33558527) does not match its "
                                                      "checksum; remove the folder and prepare the data again");
}

TEST(Damage, WhatIsNoFileIsNamed) {
  const test::TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { File::open(folder / "none"); }), HasSubstr("none: No such file"));
  EXPECT_THAT(error_of([&] { File::open(folder.path()); }), HasSubstr("it is no regular file"));
}

}  // namespace
}  // namespace data::format
