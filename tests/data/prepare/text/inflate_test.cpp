#include "data/prepare/text/unpack.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <random>
#include <stdexcept>

#include "tests/temporary_folder.h"

namespace data::prepare {
namespace {

using ::test::read_file;
using ::test::TemporaryFolder;
using ::test::write_file;
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

}  // namespace
}  // namespace data::prepare
