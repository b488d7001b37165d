// Goal: networks of ranks and people are known after a restart of musterd; a wrong file costs nothing but a log line.
// Method: the test passes the time; files in a temporary folder.
#include "controller/net/crowd.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/durable_file.h"
#include "tests/temporary_folder.h"

namespace net {
namespace {

using namespace std::chrono_literals;

Address node(std::uint8_t high, std::uint8_t last) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, high, last};
}

class Known : public ::testing::Test {
 protected:
  KnownNetworks networks_;
  KnownNetworks::Time now_{1000h};
  KnownNetworks::WallSeconds wall_{2'000'000'000};
};

TEST_F(Known, ADayLongFromTheLastToken) {
  networks_.know(node(0, 1), now_);
  now_ += 23h;
  EXPECT_TRUE(networks_.is_known(node(0, 1), now_));
  EXPECT_FALSE(networks_.is_known(node(0, 2), now_));
  networks_.know(node(0, 1), now_);
  now_ += 23h;
  EXPECT_TRUE(networks_.is_known(node(0, 1), now_));
  now_ += 1h;
  EXPECT_FALSE(networks_.is_known(node(0, 1), now_));
}

TEST_F(Known, ARestartRemembersThemWithTheirAge) {
  networks_.know(node(0, 1), now_);
  now_ += 20h;
  Address v6{0x20, 1, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 9};
  networks_.know(v6, now_);
  const auto text = networks_.text(now_, wall_);
  EXPECT_EQ(text, "1999928000 10.0.0.1\n2000000000 2001:0:0:5::\n");
  KnownNetworks later;
  KnownNetworks::Time after{5h};  // another boot
  EXPECT_EQ(later.read(text, after, wall_ + 1h), 0U);
  EXPECT_TRUE(later.is_known(node(0, 1), after));
  EXPECT_TRUE(later.is_known(network_of(v6), after));
  EXPECT_FALSE(later.has_news()) << "the file has them";
  after += 4h;
  EXPECT_FALSE(later.is_known(node(0, 1), after)) << "a day after the last token";
  EXPECT_TRUE(later.is_known(network_of(v6), after));
}

TEST_F(Known, WrongLinesAreLeftOutAndCounted) {
  const std::string text = "1999999999 10.0.0.1\nnonsense\n\n1999999999\n1999999999 host\n-5 10.0.0.2\n99 10.0.0.3\n" +
                           std::string(3, '\0') + "\n1999999999 10.0.0.4";
  EXPECT_EQ(networks_.read(text, now_, wall_), 6U);
  EXPECT_TRUE(networks_.is_known(node(0, 1), now_));
  EXPECT_FALSE(networks_.is_known(node(0, 2), now_));
  EXPECT_FALSE(networks_.is_known(node(0, 3), now_)) << "too old";
  EXPECT_TRUE(networks_.is_known(node(0, 4), now_));
}

TEST_F(Known, AClockThatWasSetBackMakesNobodyKnownForLonger) {
  EXPECT_EQ(networks_.read("2000900000 10.0.0.1\n", now_, wall_), 0U);
  EXPECT_TRUE(networks_.is_known(node(0, 1), now_));
  EXPECT_FALSE(networks_.is_known(node(0, 1), now_ + KnownNetworks::kKnownFor));
}

TEST_F(Known, AreBounded) {
  for (std::size_t i = 0; i < KnownNetworks::kMostKnown + 10; ++i) {
    networks_.know(node(static_cast<std::uint8_t>(i / 250), static_cast<std::uint8_t>(i % 250)), now_ += 1s);
  }
  EXPECT_FALSE(networks_.is_known(node(0, 0), now_)) << "the oldest is forgotten";
  const auto text = networks_.text(now_, wall_);
  EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(text, '\n')), KnownNetworks::kMostKnown);
  KnownNetworks later;
  EXPECT_EQ(later.read(text + "1999999999 11.0.0.1\n", now_, wall_), 1U);
}

TEST_F(Known, ThereIsNewsOfANewOneAndOnceAnHour) {
  networks_.know(node(0, 1), now_);
  EXPECT_TRUE(networks_.has_news());
  networks_.text(now_, wall_);
  EXPECT_FALSE(networks_.has_news());
  networks_.know(node(0, 1), now_ += 59min);
  EXPECT_FALSE(networks_.has_news());
  networks_.know(node(0, 1), now_ += 1min);
  EXPECT_TRUE(networks_.has_news());
}

class KnownFile : public ::testing::Test {
 protected:
  static KnownNetworks::Time now() { return std::chrono::steady_clock::now(); }
  const test::TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_.path() / "known-networks";
  std::shared_ptr<KnownNetworks> networks_ = std::make_shared<KnownNetworks>();
};

TEST_F(KnownFile, IsWrittenWhenThereIsNewsAndReadAtTheStart) {
  KnownNetworksFile file(path_, networks_, false);
  EXPECT_EQ(file.step(), std::nullopt) << "news wakes it";
  networks_->know(node(0, 1), now());
  EXPECT_EQ(file.step(), KnownNetworksFile::kEvery) << "for more news";
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_EQ(file.step(), std::nullopt);
  const auto later = std::make_shared<KnownNetworks>();
  const KnownNetworksFile again(path_, later, false);
  EXPECT_TRUE(later->is_known(node(0, 1), now()));
}

TEST_F(KnownFile, IsWrittenByItselfAfterNews) {
  const KnownNetworksFile file(path_, networks_, true);
  networks_->know(node(0, 1), now());
  const auto until = now() + std::chrono::seconds(30);
  while (!std::filesystem::exists(path_) && now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(KnownFile, AWrongOneIsNoReasonNotToStart) {
  std::ofstream(path_) << "{\"not\": \"ours\"}\n" << std::string(1 << 21, 'x');
  KnownNetworksFile file(path_, networks_, false);
  networks_->know(node(0, 1), now());
  file.step();
  file.step();
  EXPECT_TRUE(base::read_small_file(path_).ends_with(" 10.0.0.1\n")) << "written anew";
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  KnownNetworksFile folder(path_, networks_, false);
  networks_->know(node(0, 2), now());
  folder.step();
  EXPECT_EQ(folder.step(), std::nullopt);
  networks_->know(node(0, 3), now());
  EXPECT_EQ(folder.step(), KnownNetworksFile::kAfterTrouble) << "a lasting error is told once a minute";
  EXPECT_TRUE(networks_->is_known(node(0, 2), now()));
}

}  // namespace
}  // namespace net
