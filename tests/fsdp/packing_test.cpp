// Goal: codes, scales and values of frozen parameters are those of bitsandbytes, on every device.
// Method: tests/peers/qlora_test.py --write has quantised the same values by bitsandbytes; LibTorch's operations are
// compared with the loops of the CPU.
#include "fsdp/engine/packing.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "fsdp/formats/frozen_blocks.h"
#include "fsdp/text/json.h"
#include "tests/fsdp/error_of.h"
#include "tests/places.h"

namespace {

using fsdp::FrozenFormat;
using fsdp::Json;
using fsdp::Packing;
using ::testing::HasSubstr;

constexpr FrozenFormat kFormats[] = {FrozenFormat::kNf4, FrozenFormat::kInt8};

/// The values that tests/peers/qlora_test.py quantises: 4 blocks of 256 elements, and 37 elements more.
at::Tensor golden_values() {
  constexpr std::int64_t kCount = 1061;
  at::Tensor values = at::empty({kCount});
  for (std::int64_t i = 0; i < kCount; ++i) {
    const double share = static_cast<double>(static_cast<std::uint32_t>(i * 2654435761)) / 2147483648.0 - 1;
    values.mutable_data_ptr<float>()[i] = static_cast<float>(share * share * share * 0.05);
  }
  return values;
}

const Json& golden(FrozenFormat format) {
  static const Json all = [] {
    std::ifstream in(test::source_folder() + "/tests/golden/formats_of_bitsandbytes.json");
    std::stringstream text;
    text << in.rdbuf();
    return Json::parse(text.str());
  }();
  return all.at(name_of(format));
}

/// Numbers in hexadecimal digits, `digits` for each.
std::vector<std::uint32_t> numbers(const Json& text, std::size_t digits) {
  std::vector<std::uint32_t> out;
  const std::string all = text.as_string();
  for (std::size_t i = 0; i < all.size(); i += digits)
    out.push_back(static_cast<std::uint32_t>(std::stoul(all.substr(i, digits), nullptr, 16)));
  return out;
}

Packing packing_of(FrozenFormat format, std::int64_t count) {
  const std::int64_t block = block_of(format);
  return {format, (count + block - 1) / block * block};
}

at::Tensor packed(const Packing& packing, const at::Tensor& values) {
  at::Tensor out = at::zeros({packing.bytes()}, at::kByte);
  packing.quantise(values, out, 0);
  return out;
}

at::Tensor values_of(const Packing& packing, const at::Tensor& packed, at::ScalarType dtype = at::kFloat) {
  at::Tensor out = at::empty({packing.elements()}, dtype);
  packing.dequantise(packed, out);
  return out;
}

std::vector<float> scales_in(const Packing& packing, const at::Tensor& packed) {
  const std::int64_t blocks = packing.elements() / block_of(packing.format());
  const std::int64_t codes = packing.format() == FrozenFormat::kNf4 ? packing.elements() / 2 : packing.elements();
  const auto* scales = reinterpret_cast<const float*>(packed.const_data_ptr<std::uint8_t>() + codes);
  return {scales, scales + blocks};
}

TEST(Packing, Nf4HasTheBitsOfBitsandbytes) {
  const at::Tensor values = golden_values();
  const Packing packing = packing_of(FrozenFormat::kNf4, values.numel());
  const at::Tensor bytes = packed(packing, values);
  const Json& want = golden(FrozenFormat::kNf4);
  const auto codes = numbers(want.at("codes"), 2), scales = numbers(want.at("scales"), 8);
  ASSERT_EQ(codes.size(), static_cast<std::size_t>(values.numel() + 1) / 2);
  for (std::size_t i = 0; i < codes.size(); ++i)
    ASSERT_EQ(bytes.const_data_ptr<std::uint8_t>()[i], codes[i]) << "byte " << i;
  const auto got = scales_in(packing, bytes);
  ASSERT_EQ(got.size(), scales.size());
  for (std::size_t i = 0; i < scales.size(); ++i) ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), scales[i]) << i;
  const auto fp32 = numbers(want.at("fp32"), 8), bf16 = numbers(want.at("bf16"), 4);
  const at::Tensor full = values_of(packing, bytes), half = values_of(packing, bytes, at::kBFloat16);
  for (std::size_t i = 0; i < fp32.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(full.const_data_ptr<float>()[i]), fp32[i]) << "element " << i;
    ASSERT_EQ(half.const_data_ptr<at::BFloat16>()[i].x, bf16[i]) << "element " << i;
  }
}

// bitsandbytes computes the map in fp32. Its CPU kernel looks codes up by a coarse table, so near the middle between
// two values, and near zero, it may take a neighbour of the nearest one.
TEST(Packing, Int8HasTheCodesOfBitsandbytesOrNearerOnes) {
  const at::Tensor values = golden_values();
  const Packing packing = packing_of(FrozenFormat::kInt8, values.numel());
  const at::Tensor bytes = packed(packing, values);
  const Json& want = golden(FrozenFormat::kInt8);
  const auto codes = numbers(want.at("codes"), 2), scales = numbers(want.at("scales"), 8),
             fp32 = numbers(want.at("fp32"), 8);
  const auto got = scales_in(packing, bytes);
  for (std::size_t i = 0; i < scales.size(); ++i) ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), scales[i]) << i;
  at::Tensor theirs = bytes.clone();
  for (std::size_t i = 0; i < codes.size(); ++i)
    theirs.mutable_data_ptr<std::uint8_t>()[i] = static_cast<std::uint8_t>(codes[i]);
  const at::Tensor of_ours = values_of(packing, bytes), of_theirs = values_of(packing, theirs);
  int others = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const float value = values.const_data_ptr<float>()[i], scale = got[i / 256];
    const float ours = of_ours.const_data_ptr<float>()[i], other = of_theirs.const_data_ptr<float>()[i];
    const auto bits = std::bit_cast<std::uint32_t>(other);
    ASSERT_LE(std::abs(static_cast<std::int64_t>(bits) - static_cast<std::int64_t>(fp32[i])), 2) << "element " << i;
    if (ours == other) continue;
    EXPECT_LE(std::abs(ours - value), std::abs(other - value) + 1e-6F * scale) << "element " << i;
    others += std::abs(value) > 1e-3F * scale ? 1 : 0;
  }
  EXPECT_LE(others, 5) << "of 954 elements above a thousandth of their scale";
}

TEST(Packing, OperationsGiveTheBitsOfTheLoops) {
  const at::Generator random = at::detail::createCPUGenerator(3);
  for (const FrozenFormat format : kFormats) {
    const Packing packing(format, 40 * 256);
    const at::Tensor bytes = packed(packing, at::randn({packing.elements()}, random, at::kFloat));
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const at::Tensor by_operations = at::empty({packing.elements()}, dtype);
      packing.dequantise_by_operations(bytes, by_operations);
      EXPECT_TRUE(at::equal(values_of(packing, bytes, dtype), by_operations)) << name_of(format) << " " << dtype;
      EXPECT_TRUE(at::equal(values_of(packing, bytes).to(dtype), by_operations)) << name_of(format) << " " << dtype;
    }
  }
}

TEST(Packing, PartsOfWholeBlocksGiveTheCodesOfTheWhole) {
  const at::Tensor values = golden_values();
  for (const FrozenFormat format : kFormats) {
    const Packing packing = packing_of(format, values.numel());
    at::Tensor parts = at::zeros({packing.bytes()}, at::kByte);
    for (std::int64_t begin = 0; begin < values.numel(); begin += 768)
      packing.quantise(values.narrow(0, begin, std::min<std::int64_t>(768, values.numel() - begin)).to(at::kDouble),
                       parts, begin);
    EXPECT_TRUE(at::equal(parts, packed(packing, values))) << name_of(format);
  }
}

TEST(Packing, ValuesAreNearAndZeroStaysZero) {
  const at::Generator random = at::detail::createCPUGenerator(5);
  for (const FrozenFormat format : kFormats) {
    const Packing packing(format, 1024);
    at::Tensor values = at::randn({1024}, random, at::kFloat);
    values.narrow(0, 256, 256).zero_();
    const at::Tensor back = values_of(packing, packed(packing, values));
    EXPECT_EQ(back.narrow(0, 256, 256).abs().max().item<float>(), 0);
    const double error = (back - values).square().mean().sqrt().item<double>();
    EXPECT_LT(error, format == FrozenFormat::kNf4 ? 0.1 : 0.02) << name_of(format);
    EXPECT_GT(error, 0) << name_of(format);
  }
}

// A broken file must not become a model that computes.
TEST(Packing, WhatIsNotFiniteStaysSo) {
  for (const FrozenFormat format : kFormats)
    for (const float broken : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      const Packing packing(format, 512);
      at::Tensor values = at::ones({512});
      values[300] = broken;
      const at::Tensor bytes = packed(packing, values);
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16})
        EXPECT_FALSE(at::isfinite(values_of(packing, bytes, dtype)).all().item<bool>()) << name_of(format);
    }
}

TEST(Packing, BytesAreCodesAndScales) {
  EXPECT_EQ(Packing(FrozenFormat::kNf4, 1024).bytes(), 512 + 16 * 4);
  EXPECT_EQ(Packing(FrozenFormat::kInt8, 1024).bytes(), 1024 + 64) << "4 scales, and padding up to a cache line";
  EXPECT_EQ(Packing(FrozenFormat::kNf4, 0).bytes(), 0);
  EXPECT_THAT(error_of([] { Packing(FrozenFormat::kNf4, 96); }), HasSubstr("Packing: 96 elements in nf4: want whole"));
  EXPECT_THAT(error_of([] {
                const Packing packing(FrozenFormat::kNf4, 128);
                packing.quantise(at::ones({64}), at::zeros({packing.bytes()}, at::kByte), 32);
              }),
              HasSubstr("want a start at a multiple of 64"));
}

}  // namespace
