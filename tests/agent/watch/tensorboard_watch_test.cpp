// Goal: the scalars of TensorBoard's event files arrive once, whatever file they come in and however slowly it grows.
// Method: a file that PyTorch 2.11 has written, as bytes, cut at every place; further records by a writer of this test.
#include "agent/watch/tensorboard_watch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>

#include "base/checksum.h"
#include "tests/temporary_folder.h"

namespace agent::watch {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using Told = std::vector<std::string>;

// By torch.utils.tensorboard with tensorboard 2.21: add_scalar("loss", 2.5, 3); with new_style add_scalar("Loss/train
// set", 0.25, 4) and, in double precision, add_scalar("acc", 0.75, 4); add_text("t", "hello", 4); add_scalar("loss",
// 2.25, 5, walltime=1000.5).
constexpr std::string_view kSample =
    "4800000000000000fe92489d09e7de93b1b4c1da411a0d627261696e2e4576656e743a32522e0a2c74656e736f72626f6172"
    "642e73756d6d6172792e7772697465722e6576656e745f66696c655f77726974657232d0aacb1a00000000000000129bd82d"
    "0947e593b1b4c1da4110032a0d0a0b0a046c6f7373150000204072e7a02736000000000000004f578cef09c9e593b1b4c1da"
    "4110042a290a270a0e4c6f73732f747261696e20736574420808012a040000803e4a0b0a090a077363616c6172739c947f35"
    "2f000000000000006d5d1d50090ee693b1b4c1da4110042a220a200a03616363420c08023208000000000000e83f4a0b0a09"
    "0a077363616c61727304ca4b2c3a000000000000001295eae2098fe693b1b4c1da4110042a2d0a2b0a0e742f746578745f73"
    "756d6d617279420f0807120412020801420568656c6c6f4a080a060a047465787499fdc8341a00000000000000129bd82d09"
    "0000000000448f4010052a0d0a0b0a046c6f737315000010407c136daf";

std::string bytes_of(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

template <class Number>
std::string little_endian(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

std::string record(const std::string& data) {
  const auto length = little_endian(std::uint64_t{data.size()});
  return length + little_endian(base::masked_crc32c(length)) + data + little_endian(base::masked_crc32c(data));
}

/// A field of bytes of under 128 bytes.
std::string field(int number, const std::string& bytes) {
  return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(bytes.size()) + bytes;
}

std::string scalar(const std::string& tag, float value, std::uint8_t step, double at_s = 10) {
  const auto inner = field(1, tag) + "\x15" + little_endian(value);
  return record("\x09" + little_endian(at_s) + "\x10" + static_cast<char>(step) + field(5, field(1, inner)));
}

TEST(EventFile, OfPyTorchIsReadWhole) {
  const auto bytes = bytes_of(kSample);
  const auto read = read_events(bytes);
  EXPECT_EQ(read.taken, bytes.size());
  EXPECT_EQ(read.problem, "");
  EXPECT_EQ(read.bad_records, 0u);
  ASSERT_EQ(read.events.size(), 4u);
  EXPECT_EQ(read.events[0].step, 3);
  EXPECT_EQ(read.events[0].values, (std::vector<std::pair<std::string, double>>{{"loss", 2.5}}));
  EXPECT_EQ(read.events[1].values, (std::vector<std::pair<std::string, double>>{{"Loss/train set", 0.25}}));
  EXPECT_EQ(read.events[2].values, (std::vector<std::pair<std::string, double>>{{"acc", 0.75}}));
  EXPECT_EQ(read.events[3], (ScalarEvent{5, 1'000'500, {{"loss", 2.25}}}));
}

TEST(EventFile, ThatIsStillBeingWrittenIsReadUpToItsLastWholeRecord) {
  const auto bytes = bytes_of(kSample);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    const auto first = read_events(bytes.substr(0, cut));
    ASSERT_LE(first.taken, cut);
    EXPECT_EQ(first.problem, "");
    const auto second = read_events(bytes.substr(first.taken));
    EXPECT_EQ(first.events.size() + second.events.size(), 4u) << cut;
    EXPECT_EQ(first.taken + second.taken, bytes.size());
  }
}

TEST(EventFile, DamageIsFoundAndNothingReadBeyondItsBounds) {
  const auto good = scalar("a", 1, 1);
  for (std::size_t at = 0; at < good.size(); ++at) {
    auto bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x40);
    const auto read = read_events(bytes + scalar("b", 2, 2));
    if (at < 12) {
      EXPECT_NE(read.problem, "") << at;
      EXPECT_TRUE(read.events.empty());
    } else {
      EXPECT_EQ(read.bad_records, 1u) << at;
      ASSERT_EQ(read.events.size(), 1u) << "the next record counts";
    }
  }
  // Any bytes with a right checksum.
  std::uint32_t random = 1;
  for (int i = 0; i < 20'000; ++i) {
    std::string message;
    for (int byte = 0; byte < i % 60; ++byte)
      message += static_cast<char>((random = random * 1664525 + 1013904223) >> 24);
    parse_event(message);
    parse_event("\x09" + std::string(8, '\x41') + "\x2a" + static_cast<char>(message.size()) + message);
  }
}

TEST(EventFile, TensorsOfOneNumberAreScalarsAndOthersAreNot) {
  const auto value_of = [](const std::string& tensor) -> std::optional<double> {
    const auto event = parse_event(field(5, field(1, field(1, "x") + field(8, tensor))));
    return event ? std::optional(event->values.at(0).second) : std::nullopt;
  };
  const std::string one_dimension = field(2, field(2, "\x08\x01")), three = field(2, field(2, "\x08\x03"));
  EXPECT_EQ(value_of("\x08\x01" + field(4, little_endian(1.5F))), 1.5) << "tensor_content";
  EXPECT_EQ(value_of("\x08\x02" + field(6, little_endian(2.5))), 2.5);
  EXPECT_EQ(value_of("\x08\x01" + one_dimension + field(5, little_endian(0.5F))), 0.5);
  EXPECT_EQ(value_of("\x08\x03\x38\x07"), 7.0) << "int_val, not packed";
  EXPECT_EQ(value_of("\x08\x09" + field(10, "\x07")), 7.0) << "int64_val, packed";
  EXPECT_EQ(value_of("\x08\x13" + field(13, std::string("\x80\x7c", 2))), 1.5) << "half_val: the bits 0x3e00";
  EXPECT_EQ(value_of("\x08\x01" + three + field(5, little_endian(0.5F))), std::nullopt);
  EXPECT_EQ(value_of("\x08\x01" + field(5, little_endian(0.5F) + little_endian(0.5F))), std::nullopt);
  EXPECT_EQ(value_of("\x08\x07" + field(8, "text")), std::nullopt);
}

TEST(SeriesOfATag, HasOnlyTheCharactersOfASeries) {
  EXPECT_EQ(series_of_tag("Loss/train set"), "Loss/train_set");
  EXPECT_EQ(series_of_tag("/a/\xc3\xa9/"), "a/__");
  EXPECT_EQ(series_of_tag("//"), "");
  EXPECT_EQ(series_of_tag(std::string(200, 'x')), "");
}

class Tensorboard : public testing::Test {
 protected:
  void append(const std::string& name, const std::string& bytes) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::app | std::ios::binary) << bytes;
  }
  Told look(std::chrono::milliseconds later = 1s) {
    now_ += later;
    Told told;
    const auto found = watch_.look({.now = now_});
    more_ = found.more;
    for (const auto& report : found.reports) {
      auto text = std::to_string(report.step->step);
      for (const auto& [name, value] : report.step->values)
        text += " " + name + "=" + std::to_string(value).substr(0, 4);
      told.push_back(text);
    }
    return told;
  }

  test::TemporaryFolder folder_;
  std::chrono::steady_clock::time_point now_{1h};
  TensorboardWatch watch_{folder_.path().string() + "/runs"};
  bool more_ = false;
};

TEST_F(Tensorboard, NewFilesAreReadAsTheyGrowAndOldOnesFromTheirEnd) {
  append("runs/old/events.out.tfevents.1.host", scalar("loss", 9, 1));
  EXPECT_EQ(look(), Told{});
  append("runs/old/events.out.tfevents.1.host", scalar("loss", 8, 2));
  append("runs/new/events.out.tfevents.2.host", bytes_of(kSample).substr(0, 140));
  append("runs/new/notes.txt", "no events");
  EXPECT_EQ(look(), (Told{"2 old/loss=8.00", "3 loss=2.50"}));
  append("runs/new/events.out.tfevents.2.host", bytes_of(kSample).substr(140));
  EXPECT_EQ(look(), (Told{"5 loss=2.25", "4 Loss/train_set=0.25 acc=0.75"})) << "in the order of their times";
  EXPECT_EQ(look(), Told{});
  EXPECT_EQ(watch_.take_complaint(), "");
}

TEST_F(Tensorboard, ValuesOfOneMomentAreOneReport) {
  look();
  append("runs/events.out.tfevents.1", scalar("loss", 2, 1) + scalar("acc", 0.5, 1) + scalar("loss", 1, 2, 11));
  EXPECT_EQ(look(), (Told{"1 loss=2.00 acc=0.50", "2 loss=1.00"}));
}

TEST_F(Tensorboard, TheSameTagOfAnotherFolderIsAnotherSeries) {
  look();
  append("runs/train/events.out.tfevents.1", scalar("loss", 2, 1, 10));
  append("runs/validation/events.out.tfevents.1", scalar("loss", 3, 1, 11));
  append("runs/wide/events.out.tfevents.1", scalar("loss", 4, 1, 12));
  EXPECT_EQ(look(), (Told{"1 loss=2.00", "1 validation/loss=3.00", "1 wide/loss=4.00"}));
}

TEST_F(Tensorboard, ARecordThatIsTooLongForAScalarIsLeftOut) {
  look();
  const auto image = record(std::string(kLongestRecord + 1, 'i'));
  append("runs/events.out.tfevents.1", scalar("loss", 2, 1) + image.substr(0, 1'000));
  EXPECT_EQ(look(), Told{"1 loss=2.00"});
  append("runs/events.out.tfevents.1", image.substr(1'000) + scalar("loss", 1, 2));
  EXPECT_EQ(look(), Told{"2 loss=1.00"});
}

TEST_F(Tensorboard, ManyFilesAreReadInBoundedPieces) {
  look();
  std::string many;
  while (many.size() < 700 << 10) many += scalar("loss", 2, 1);
  const auto one = scalar("loss", 2, 1).size();
  for (const auto* name : {"a", "b", "c"}) append(std::string("runs/") + name + "/tfevents", many + scalar(name, 1, 2));
  std::size_t bytes = 0;
  Told all;
  for (more_ = true; more_;) {
    const auto told = look();
    bytes += told.size() * one;
    all.insert(all.end(), told.begin(), told.end());
  }
  for (const auto* name : {"2 a=1.00", "2 b=1.00", "2 c=1.00"}) {
    EXPECT_NE(std::ranges::find(all, name), all.end()) << name;
  }
}

TEST_F(Tensorboard, AFileThatMakesNoSenseIsGivenUpAndNoOther) {
  look();
  append("runs/events.out.tfevents.1", "this is no event file at all, though its name says so");
  append("runs/events.out.tfevents.2", scalar("loss", 2, 1));
  EXPECT_EQ(look(), Told{"1 loss=2.00"});
  EXPECT_EQ(watch_.take_complaint(), "") << "a disk may show bytes later than sizes";
  for (int i = 0; i < TensorboardWatch::kMostBadLooks; ++i) look();
  EXPECT_NE(watch_.take_complaint().find("is read no further: the checksum of a record's length is wrong"),
            std::string::npos);
}

}  // namespace
}  // namespace agent::watch
