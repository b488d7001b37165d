// JSON, checksums, layouts and safetensors: everything that needs no ranks.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>

#include "base/checksum.h"
#include "fsdp/engine/layout.h"
#include "fsdp/engine/random_state.h"
#include "fsdp/files/safetensors.h"
#include "fsdp/text/json.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/temporary_folder.h"

namespace {

using fsdp::Json;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::string parse_error(const std::string& text) {
  return error_of([&] { Json::parse(text); });
}

TEST(JsonText, ParsesEveryKindOfValue) {
  const Json json = Json::parse(R"( {"a":[1,-2.5,1e3,true,false,null,"x\n\u00e9\ud83d\ude00"],"b":{}} )");
  const Json::Array& a = json.at("a").as_array();
  EXPECT_EQ(a[0].as_int(), 1);
  EXPECT_EQ(a[1].as_double(), -2.5);
  EXPECT_EQ(a[2].as_double(), 1000);
  EXPECT_TRUE(a[3].as_bool());
  EXPECT_FALSE(a[4].as_bool());
  EXPECT_TRUE(a[5].is_null());
  EXPECT_EQ(a[6].as_string(), "x\n\xC3\xA9\xF0\x9F\x98\x80");
  EXPECT_EQ(json.at("b").size(), 0u);
}

TEST(JsonText, KeepsIntegersWholeAndDoublesExact) {
  for (const std::int64_t value : {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()})
    EXPECT_EQ(Json::parse(Json(value).dump()).as_int(), value);
  for (const double value : {0.1, 1.0, -0.0, 1e300, 5e-324, 1.0 / 3, 123456789012345678.0}) {
    const Json back = Json::parse(Json(value).dump());
    EXPECT_FALSE(back.is_int()) << value;
    EXPECT_EQ(back.as_double(), value);
    EXPECT_EQ(std::signbit(back.as_double()), std::signbit(value));
  }
  EXPECT_EQ(Json::parse("9223372036854775808").as_double(), 9223372036854775808.0) << "too large for an integer";
  EXPECT_THAT(error_of([] { Json(std::nan("")).dump(); }), HasSubstr("NaN"));
  EXPECT_THAT(error_of([] { Json(std::uint64_t{1} << 63); }), HasSubstr("does not fit"));
}

TEST(JsonText, DumpsWhatItParses) {
  const std::string text = R"({"a":[1,2.5,"q\"\\\u0001",{"k":null}],"b":true,"c":{},"d":[]})";
  EXPECT_EQ(Json::parse(text).dump(), text);
  EXPECT_EQ(Json::parse(Json::parse(text).dump(2)), Json::parse(text));
  EXPECT_EQ(Json::parse(R"({"a":[1]})").dump(1), "{\n \"a\": [\n  1\n ]\n}");
}

TEST(JsonText, RefusesWhatIsNotStrictAndSaysWhere) {
  EXPECT_EQ(parse_error("[1,]"),
            "JSON, byte 3: syntax error while parsing value - unexpected ']'; expected '[', '{', or a literal");
  EXPECT_EQ(parse_error(R"({"a":1,"a":2})"), "JSON: key \"a\" appears twice");
  EXPECT_THAT(parse_error("[1] x"), HasSubstr("JSON, byte 4: syntax error while parsing value"));
  EXPECT_EQ(parse_error(std::string("{}\0", 3)), "JSON, byte 2: a NUL byte");
  EXPECT_THAT(parse_error(std::string(65, '[') + std::string(65, ']')), HasSubstr("nested deeper than 64"));
  EXPECT_EQ(parse_error("1e999"), "JSON, byte 4: number overflow parsing '1e999'");
  EXPECT_EQ(error_of([] { Json("\xff").dump(); }), "JSON: a string is not UTF-8");
  EXPECT_EQ(error_of([] { Json::parse(std::string(64, '[') + std::string(64, ']')); }), "no error");
  for (const char* bad : {"",
                          "{",
                          "[",
                          "01",
                          "1.",
                          ".5",
                          "+1",
                          "-",
                          "1e",
                          "tru",
                          "nul",
                          "'a'",
                          "{a:1}",
                          "{\"a\" 1}",
                          "\"a",
                          "\"\\x\"",
                          "\"\\u12\"",
                          "\"\\ud800\"",
                          "\"\\udc00\"",
                          "\"\\ud800\\u0041\"",
                          "\"\x01\"",
                          "\"\xff\"",
                          "\"\xc0\x80\"",
                          "\"\xed\xa0\x80\"",
                          "\"\xf4\x90\x80\x80\"",
                          "\"\xe2\x82\"",
                          "NaN",
                          "Infinity",
                          "1e999",
                          "[1 2]",
                          "\xEF\xBB\xBF{}",
                          "/**/1"})
    EXPECT_THAT(parse_error(bad), HasSubstr("JSON, byte ")) << bad;
}

TEST(JsonText, NamesTypesAndKeys) {
  EXPECT_EQ(error_of([] { Json(1).as_string(); }), "JSON: want a string, this is an integer");
  EXPECT_EQ(error_of([] { Json::parse("{}").at("step"); }), "JSON: no key \"step\" in an object");
  Json built;
  built["list"].push_back(1);
  built["list"].push_back("two");
  EXPECT_EQ(built.dump(), R"({"list":[1,"two"]})");
}

TEST(JsonText, SurvivesRandomDamage) {
  std::mt19937 random(1);
  const std::string good = R"({"a":[1,-2.5e3,true,null,"x\u00e9"],"b":{"c":[[],{}]}})";
  for (int i = 0; i < 20000; ++i) {
    std::string text = good.substr(0, random() % (good.size() + 1));
    for (int flips = random() % 4; flips > 0 && !text.empty(); --flips) text[random() % text.size()] = random();
    try {
      EXPECT_EQ(Json::parse(Json::parse(text).dump()), Json::parse(text));
    } catch (const fsdp::JsonError&) {
    }
  }
}

fsdp::ParameterInfo parameter(const std::string& name, std::int64_t numel) {
  return {name, {}, {numel}, numel};
}

TEST(Layout, SplitsEveryElementToExactlyOneRank) {
  for (const int world_size : {1, 2, 3, 4, 7, 64}) {
    const fsdp::UnitLayout layout({parameter("a", 100), parameter("b", 3), parameter("c", 1000), parameter("d", 0)},
                                  world_size, 0);
    EXPECT_EQ(layout.numel(), 1103);
    EXPECT_EQ(layout.padded_numel(), layout.chunk() * world_size);
    for (const fsdp::ParameterInfo& info : layout.parameters()) {
      EXPECT_EQ(info.offset % fsdp::UnitLayout::kAlignment, 0);
      std::int64_t covered = 0;
      for (int rank = 0; rank < world_size; ++rank) {
        const fsdp::Slice slice = layout.slice(info, rank);
        if (slice.length == 0) continue;
        EXPECT_EQ(slice.begin, covered);
        EXPECT_EQ(info.offset + slice.begin, rank * layout.chunk() + slice.shard_offset);
        EXPECT_LE(slice.shard_offset + slice.length, layout.chunk());
        covered += slice.length;
      }
      EXPECT_EQ(covered, info.numel) << info.name << " over " << world_size;
    }
  }
}

TEST(Layout, LeavesLastRanksEmptyWhenThereIsTooLittle) {
  const fsdp::UnitLayout layout({parameter("bias", 3)}, 4, 0);
  EXPECT_EQ(layout.chunk(), fsdp::UnitLayout::kAlignment);
  EXPECT_EQ(layout.slice(layout.parameters()[0], 0).length, 3);
  EXPECT_EQ(layout.slice(layout.parameters()[0], 3).length, 0);
  EXPECT_EQ(fsdp::UnitLayout({}, 4, 0).padded_numel(), 0);
}

// Safetensors.

std::string bytes_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string length_prefix(std::uint64_t length) {
  std::string prefix;
  for (int i = 0; i < 8; ++i) prefix.push_back(static_cast<char>(length >> (8 * i)));
  return prefix;
}

class Safetensors : public ::testing::Test {
 protected:
  /// The error of reading a file of these bytes.
  std::string read_error(const std::string& bytes) {
    std::ofstream(folder_.path() / "in", std::ios::binary).write(bytes.data(), bytes.size());
    return error_of([&] { fsdp::SafetensorsReader reader(folder_.path() / "in"); });
  }
  std::string header_error(const std::string& header, std::size_t data_bytes) {
    return read_error(length_prefix(header.size()) + header + std::string(data_bytes, '\0'));
  }

  TemporaryFolder folder_;
};

TEST_F(Safetensors, AreWrittenByteForByteAsSpecified) {
  const fs::path path = folder_.path() / "out";
  const at::Tensor matrix = at::arange(6, at::kFloat).view({2, 3});
  const fsdp::WrittenFile written =
      fsdp::write_safetensors(path, {{"w", matrix.t()}, {"n", at::full({1}, 258, at::kShort)}}, {{"by", "muster"}});
  std::string header = R"({"__metadata__":{"by":"muster"},"n":{"data_offsets":[24,26],"dtype":"I16","shape":[1]},)"
                       R"("w":{"data_offsets":[0,24],"dtype":"F32","shape":[3,2]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string want = length_prefix(header.size()) + header;
  for (const float value : {0.f, 3.f, 1.f, 4.f, 2.f, 5.f}) want.append(reinterpret_cast<const char*>(&value), 4);
  want += std::string("\x02\x01", 2);
  EXPECT_EQ(bytes_of(path), want);
  EXPECT_EQ(written.bytes, static_cast<std::int64_t>(want.size()));
  EXPECT_THAT(written.blocks, ::testing::ElementsAre(base::crc32c(want)));
  EXPECT_EQ(written.header_bytes, static_cast<std::int64_t>(8 + header.size()));
  EXPECT_EQ(written.header_checksum, base::crc32c(std::string_view(want).substr(0, 8 + header.size())));
}

TEST_F(Safetensors, ComeBackInEveryDtype) {
  const fs::path path = folder_.path() / "out";
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto type : {at::kByte, at::kBool, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kBFloat16,
                          at::kFloat, at::kDouble})
    tensors.emplace_back(c10::toString(type), at::arange(3).to(type));  // later tensors start unaligned
  tensors.emplace_back("empty", at::empty({0, 4}));
  tensors.emplace_back("scalar", at::scalar_tensor(2.5));
  fsdp::write_safetensors(path, tensors);
  const fsdp::SafetensorsReader reader(path);
  EXPECT_EQ(reader.entries().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(reader.tensor(name).scalar_type(), tensor.scalar_type());
    EXPECT_TRUE(at::equal(reader.tensor(name), tensor)) << name;
  }
  EXPECT_THAT(error_of([&] { reader.tensor("missing"); }), HasSubstr("no tensor \"missing\""));
}

TEST_F(Safetensors, OfHostileContentAreRefusedWithTheFinding) {
  const std::string one = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_EQ(header_error(one + "}", 8), "no error");
  EXPECT_THAT(read_error("short"), HasSubstr("too short"));
  EXPECT_THAT(read_error(length_prefix(~0ull) + "{}"), HasSubstr("at most 100000000"));
  EXPECT_THAT(read_error(length_prefix(3) + "{}"), HasSubstr("header of 3 bytes in a file of 10"));
  EXPECT_THAT(header_error("[]", 0), HasSubstr("does not start with '{'"));
  EXPECT_THAT(header_error("{\"a\":", 0), HasSubstr("JSON, byte"));
  EXPECT_THAT(header_error(one + "}", 7), HasSubstr("leave the file's 7 bytes"));
  EXPECT_THAT(header_error(one + "}", 9), HasSubstr("1 bytes behind the last tensor"));
  EXPECT_THAT(header_error(one + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 8), HasSubstr("overlap"));
  EXPECT_THAT(header_error(one + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[9,10]}})", 10),
              HasSubstr("a hole before data byte 9"));
  const auto entry = [&](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return header_error(R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}",
                        8);
  };
  EXPECT_THAT(entry(R"("F31")", "[2]", "[0,8]"), HasSubstr("unknown dtype \"F31\""));
  EXPECT_THAT(entry(R"("F32")", "[3]", "[0,8]"), HasSubstr("does not fill"));
  EXPECT_THAT(entry(R"("F32")", "[-2]", "[0,8]"), HasSubstr("does not fill"));
  EXPECT_THAT(entry(R"("F32")", "[4611686018427387904,4]", "[0,0]"), HasSubstr("does not fill"));
  EXPECT_THAT(entry(R"("F32")", "[2]", "[8,0]"), HasSubstr("data_offsets 8 to 0"));
  EXPECT_THAT(entry(R"("F32")", "[2]", "[-8,0]"), HasSubstr("data_offsets -8"));
  EXPECT_THAT(entry(R"("F32")", "[2]", "[0,9223372036854775807]"), HasSubstr("leave the file"));
  EXPECT_THAT(entry(R"("F32")", "[2]", "[0]"), HasSubstr("two data_offsets"));
  EXPECT_THAT(entry(R"("F32")", "[2.0]", "[0,8]"), HasSubstr("want an integer"));
  EXPECT_THAT(entry("7", "[2]", "[0,8]"), HasSubstr("want a string"));
  EXPECT_THAT(header_error("{\"a\":" + std::string(1000, '[') + std::string(1000, ']') + "}", 0),
              HasSubstr("nested deeper"));
  EXPECT_THAT(error_of([&] { fsdp::SafetensorsReader reader(folder_.path()); }), HasSubstr("no regular file"));
  EXPECT_THAT(error_of([&] { fsdp::SafetensorsReader reader(folder_.path() / "none"); }), HasSubstr("No such file"));
}

TEST_F(Safetensors, SurviveRandomDamage) {
  const fs::path path = folder_.path() / "out";
  fsdp::write_safetensors(path, {{"a", at::arange(4, at::kFloat)}, {"b", at::arange(3)}}, {{"k", "v"}});
  const std::string good = bytes_of(path);
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = good;
    for (int flips = 1 + random() % 3; flips > 0; --flips) bytes[random() % 180] = random();
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    std::ofstream(folder_.path() / "in", std::ios::binary).write(bytes.data(), bytes.size());
    try {
      const fsdp::SafetensorsReader reader(folder_.path() / "in");
      for (const auto& [name, entry] : reader.entries()) reader.tensor(name).sum();
    } catch (const c10::Error&) {
    }
  }
}

TEST_F(Safetensors, ThatCannotBeWrittenLeaveNothing) {
  const fs::path path = folder_.path() / "out";
  std::ofstream(path) << "mine";
  EXPECT_THAT(error_of([&] { fsdp::write_safetensors(path, {}); }), HasSubstr("File exists"));
  EXPECT_EQ(bytes_of(path), "mine");
  const fs::path fresh = folder_.path() / "fresh";
  EXPECT_THAT(error_of([&] {
                fsdp::write_safetensors(fresh, {{"a", at::ones(1)}, {"a", at::ones(1)}});
              }),
              HasSubstr("\"a\" is taken already"));
  EXPECT_THAT(error_of([&] {
                fsdp::write_safetensors(fresh, {{"c", at::ones(1, at::kComplexFloat)}});
              }),
              HasSubstr("cannot hold dtype"));
  EXPECT_FALSE(fs::exists(fresh));
  EXPECT_THAT(error_of([&] { fsdp::write_safetensors(folder_.path() / "no" / "x", {}); }), HasSubstr("cannot create"));
}

TEST(RandomState, RepeatsWhatFollows) {
  at::manual_seed(3);
  const at::Tensor state = fsdp::random_state();
  const at::Tensor first = at::randn({5});
  fsdp::set_random_state(state);
  EXPECT_TRUE(at::equal(at::randn({5}), first));
  EXPECT_NE(error_of([] { fsdp::set_random_state(at::zeros({3}, at::kByte)); }), "no error");
}

}  // namespace
