#include "data/prepare/text/text_source.h"

#include <gmock/gmock.h>
#include <lz4frame.h>

#include <cstdlib>
#include <random>
#include <stdexcept>

#include "tests/temporary_folder.h"

namespace data::prepare {
namespace {

using ::test::read_file;
using ::test::TemporaryFolder;
using ::test::write_file;
using namespace std::string_literals;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// The text packed by the system's gzip.
std::string packed(const std::string& text, const char* level) {
  const TemporaryFolder folder;
  write_file(folder / "text", text);
  const std::string command = "gzip " + std::string(level) + " '" + (folder / "text").native() + "'";
  EXPECT_EQ(std::system(command.c_str()), 0);
  return read_file(folder / "text.gz");
}

std::string words(std::size_t count) {
  std::mt19937 random(1);
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += "word" + std::to_string(random() % 300) + (i % 9 == 0 ? "\n" : " ");
  return text;
}

std::string noise(std::size_t count) {
  std::mt19937 random(2);
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += static_cast<char>(random());
  return text;
}

constexpr std::size_t kPlenty = 1 << 24;

TEST(Gunzip, UnpacksWhatGzipPacks) {
  for (const auto& text : {std::string(), std::string("a"), std::string(1000, 'x'), words(30000), noise(200000)}) {
    for (const char* level : {"-1", "-6", "-9"}) EXPECT_EQ(gunzip(packed(text, level), kPlenty), text);
  }
}

TEST(Gunzip, UnpacksSeveralMembers) {
  EXPECT_EQ(gunzip(packed("one ", "-9") + packed("two", "-1"), kPlenty), "one two");
}

TEST(Gunzip, LeavesOutWhatFollowsTheLastMember) {
  EXPECT_EQ(gunzip(packed("one ", "-9") + packed("two", "-1") + std::string(512, '\0'), kPlenty), "one two");
  EXPECT_EQ(gunzip(packed("one", "-6") + "a tail", kPlenty), "one");
}

TEST(Gunzip, CutsOffAtTheLimit) {
  const auto text = words(5000);
  EXPECT_EQ(gunzip(packed(text, "-9"), 1000), text.substr(0, 1000));
  EXPECT_EQ(gunzip(packed(std::string(1 << 20, 'x'), "-9"), 10), std::string(10, 'x'));
}

TEST(Gunzip, SaysWhatIsWrong) {
  const auto whole = packed(words(2000), "-9");
  EXPECT_THAT([&] { gunzip("plain text, not packed", kPlenty); },
              ThrowsMessage<std::runtime_error>(HasSubstr("no gzip")));
  EXPECT_THAT([&] { gunzip(whole.substr(0, whole.size() / 2), kPlenty); },
              ThrowsMessage<std::runtime_error>(HasSubstr("ends too early")));
  auto changed = whole;
  changed[changed.size() - 8] ^= 1;
  EXPECT_THAT([&] { gunzip(changed, kPlenty); }, ThrowsMessage<std::runtime_error>(HasSubstr("checksum")));
}

TEST(Gunzip, DamagedBytesAreAnErrorAndNothingWorse) {
  const auto whole = packed(words(2000), "-9");
  std::mt19937 random(3);
  for (int i = 0; i < 3000; ++i) {
    auto changed = whole;
    for (int k = 0; k < 3; ++k) changed[random() % changed.size()] = static_cast<char>(random());
    try {
      EXPECT_LE(gunzip(changed, 100'000).size(), 100'000u);
    } catch (const std::runtime_error&) {
    }
  }
}

constexpr std::size_t kMost = 1 << 20;
const std::string kHead = "\x04\x22\x4d\x18\x40\x40\xc0"s;  // version 1, blocks that lean on earlier ones

std::string little_endian(std::uint32_t value) {
  return {static_cast<char>(value), static_cast<char>(value >> 8), static_cast<char>(value >> 16),
          static_cast<char>(value >> 24)};
}

/// A frame of these packed blocks.
std::string frame(const std::vector<std::string>& blocks) {
  std::string out = kHead;
  for (const auto& block : blocks) out += little_endian(static_cast<std::uint32_t>(block.size())) + block;
  return out + little_endian(0);
}

/// The text packed as apt packs it: blocks of 64 KiB that lean on earlier ones, with a checksum of the text.
std::string lz4_packed(const std::string& text) {
  LZ4F_preferences_t how = LZ4F_INIT_PREFERENCES;
  how.frameInfo.blockSizeID = LZ4F_max64KB;
  how.frameInfo.blockMode = LZ4F_blockLinked;
  how.frameInfo.contentChecksumFlag = LZ4F_contentChecksumEnabled;
  std::string out(LZ4F_compressFrameBound(text.size(), &how), '\0');
  out.resize(LZ4F_compressFrame(out.data(), out.size(), text.data(), text.size(), &how));
  return out;
}

std::string refusal(std::string_view bytes, std::size_t most = kMost) {
  try {
    unlz4(bytes, most);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "unpacked";
}

TEST(Lz4, UnpacksWhatLz4Packs) {
  for (const auto& text :
       {""s, "a"s, "abcabcabcabcabcabcxy"s, std::string(100'000, 'q'), words(60'000), noise(200'000)}) {
    EXPECT_EQ(unlz4(lz4_packed(text), kMost), text);
  }
}

TEST(Lz4, ReadsStoredBlocksAndTheFirstFrameAlone) {
  const auto stored = kHead + little_endian(0x8000'0003U) + "abc" + little_endian(0);
  EXPECT_EQ(unlz4(stored, kMost), "abc");
  EXPECT_EQ(unlz4(stored + lz4_packed("more"), kMost), "abc");
}

TEST(Lz4, DamageIsDescribed) {
  EXPECT_THAT(refusal("no frame at all"), HasSubstr("not an LZ4 frame"));
  // "abc", then 9 bytes from 4 back.
  EXPECT_THAT(refusal(frame({"\x35"s + "abc" + "\x04\0"s + "\x50"s + "xyxyx"})), HasSubstr("LZ4 frame is damaged"));
  EXPECT_THAT(refusal(lz4_packed(words(100)), 8), HasSubstr("more than 8 bytes"));
  EXPECT_THAT(refusal("\x04\x22\x4d\x18\x41\x40\0\0\0\0\xc0"s), HasSubstr("dictionary"));
  auto whole = lz4_packed(words(100));
  for (std::size_t cut = 4; cut < whole.size(); ++cut) {
    EXPECT_NE(refusal(std::string_view(whole).substr(0, cut)), "unpacked") << cut;
  }
  EXPECT_THAT(refusal(std::string_view(whole).substr(0, whole.size() - 1)), HasSubstr("truncated"));
  whole.back() ^= 1;
  EXPECT_THAT(refusal(whole), HasSubstr("damaged: ERROR_contentChecksum_invalid"));
}

TEST(Lz4, HostileBlocksEnd) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::string block;
    for (auto left = random() % 64; left > 0; --left) block += static_cast<char>(random());
    try {
      EXPECT_LE(unlz4(frame({block}), 4096).size(), 4096U);
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), HasSubstr("LZ4 frame"));
    }
  }
}

}  // namespace
}  // namespace data::prepare
