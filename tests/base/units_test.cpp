#include "base/numbers.h"

#include <gtest/gtest.h>

#include "base/words.h"

namespace base {
namespace {

TEST(Durations, AreReadWithTheirUnits) {
  const std::pair<const char*, std::int64_t> cases[] = {{"500ms", 500},
                                                        {"90s", 90'000},
                                                        {"30m", 1'800'000},
                                                        {"12h", 43'200'000},
                                                        {"2d", 172'800'000},
                                                        {"1h30m", 5'400'000},
                                                        {"1m30s500ms", 90'500},
                                                        {"0s", 0},
                                                        {"0ms", 0},
                                                        {"10000d", 864'000'000'000}};
  for (const auto& [text, milliseconds] : cases) EXPECT_EQ(parse_duration_ms(text), milliseconds) << text;
}

TEST(Durations, AnythingElseIsRefused) {
  for (const char* text : {"", "12", "h", "12 hours", "12 h", " 12h", "12h ", "-1s", "+1s", "1.5h", "1s1h", "1h1h",
                           "10001d", "99999999999999999999s", "9223372036854775807d", "1H", "1e3s", "1h-5m"}) {
    EXPECT_FALSE(parse_duration_ms(text)) << text;
  }
}

TEST(Durations, PrintedOnesAreReadBack) {
  for (const std::int64_t value :
       {0L, 1L, 999L, 1000L, 2500L, 90'000L, 3'600'000L, 5'400'000L, 86'400'000L, 90'061'001L}) {
    EXPECT_EQ(parse_duration_ms(print_duration_ms(value)), value) << print_duration_ms(value);
  }
  EXPECT_EQ(print_duration_ms(5'400'000), "1h30m");
}

TEST(Sizes, AreReadInBinaryUnitsAlone) {
  EXPECT_EQ(parse_size_bytes("16MiB"), 16 << 20);
  EXPECT_EQ(parse_size_bytes("64KiB"), 64 << 10);
  EXPECT_EQ(parse_size_bytes("512B"), 512);
  EXPECT_EQ(parse_size_bytes("1TiB"), std::int64_t{1} << 40);
  for (const char* text : {"", "16", "16MB", "16 MiB", "-1B", "1.5GiB", "1GiB1MiB", "99999999TiB"}) {
    EXPECT_FALSE(parse_size_bytes(text)) << text;
  }
  for (const std::int64_t value : {0L, 1L, 1023L, 1024L, 1536L, 16L << 20, 3L << 40}) {
    EXPECT_EQ(parse_size_bytes(print_size_bytes(value)), value);
  }
}

TEST(Sizes, ForPeopleAreRounded) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(std::int64_t{80} << 30), "80 GiB");
  EXPECT_EQ(bytes_text((std::int64_t{10} << 30) + (400 << 20)), "10.4 GiB") << "which is not 10 GiB";
  EXPECT_EQ(bytes_text(std::int64_t{812} << 20), "812 MiB");
  EXPECT_EQ(bytes_text((1 << 20) - 1), "1.0 MiB") << "and not 1024 KiB";
  EXPECT_EQ(bytes_text(std::int64_t{3} << 50), "3.0 PiB");
  EXPECT_EQ(bytes_text(std::int64_t{4000} << 50), "4000 PiB");
}

TEST(Nearest, FindsSlipsAndLeavesStrangersAlone) {
  const std::vector<std::string> names{"learning_rate", "steps", "batch_size", "seed"};
  EXPECT_EQ(nearest("learing_rate", names), "learning_rate");
  EXPECT_EQ(nearest("setps", names), "steps");
  EXPECT_EQ(nearest("batchsize", names), "batch_size");
  EXPECT_EQ(nearest("seeds", names), "seed");
  EXPECT_EQ(nearest("optimizer", names), "");
  EXPECT_EQ(nearest(std::string(100'000, 'x'), names), "");
}

}  // namespace
}  // namespace base
