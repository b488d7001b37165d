#include "fsdp/engine/packing.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "fsdp/comm/buffer_pool.h"
#include "fsdp/engine/dry_run.h"
#include "fsdp/formats/code_map.h"
#include "fsdp/formats/frozen_blocks.h"

namespace fsdp {
namespace {

constexpr std::int64_t kBlocksOfATask = 256;  // so that a thread gets a stretch that is worth its start
constexpr std::int64_t kPieceElements = std::int64_t{1} << 22;  // that operations make at once

std::int64_t bits_of(FrozenFormat format) {
  return format == FrozenFormat::kNf4 ? 4 : 8;
}

template <class Value>
void dequantise_blocks(FrozenFormat format, const at::Tensor& codes, const at::Tensor& scales,
                       const at::Tensor& values) {
  const std::int64_t block = block_of(format), bytes = block * bits_of(format) / 8;
  void (*dequantise_block)(const std::uint8_t*, float, Value*) = dequantise_int8;
  if (format == FrozenFormat::kNf4) dequantise_block = dequantise_nf4;
  const auto* code = codes.const_data_ptr<std::uint8_t>();
  const auto* scale = scales.const_data_ptr<float>();
  auto* value = static_cast<Value*>(values.mutable_data_ptr());
  at::parallel_for(0, scales.numel(), kBlocksOfATask, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t b = first; b < last; ++b) dequantise_block(code + b * bytes, scale[b], value + b * block);
  });
}

/// The values that each byte of codes stands for: [256, values of a byte].
at::Tensor table_of(FrozenFormat format, at::Device device) {
  constexpr std::int64_t kBytes = 256;
  const std::int64_t values = format == FrozenFormat::kNf4 ? 2 : 1;
  at::Tensor table = at::empty({kBytes, values}, at::kFloat);
  auto* value = table.mutable_data_ptr<float>();
  for (std::int64_t byte = 0; byte < kBytes; ++byte) {
    if (format == FrozenFormat::kNf4) {
      *value++ = kNf4Values[byte >> 4];
      *value++ = kNf4Values[byte & 15];
    } else {
      *value++ = code_map(true).values[static_cast<std::size_t>(byte)];
    }
  }
  return table.to(device);
}

}  // namespace

const char* name_of(FrozenFormat format) {
  switch (format) {
    case FrozenFormat::kInt8:
      return "int8";
    case FrozenFormat::kNf4:
      return "nf4";
    case FrozenFormat::kPlain:
      break;
  }
  return "plain";
}

std::int64_t block_of(FrozenFormat format) {
  switch (format) {
    case FrozenFormat::kInt8:
      return kInt8Block;
    case FrozenFormat::kNf4:
      return kNf4Block;
    case FrozenFormat::kPlain:
      break;
  }
  return 1;
}

Packing::Packing(FrozenFormat format, std::int64_t elements) : format_(format), elements_(elements) {
  TORCH_CHECK(format != FrozenFormat::kPlain && elements % block_of(format) == 0, "Packing: ", elements,
              " elements in ", name_of(format), ": want whole blocks of a quantised format");
}

std::int64_t Packing::code_bytes() const {
  return elements_ * bits_of(format_) / 8;
}

std::int64_t Packing::scale_bytes() const {
  return elements_ / block_of(format_) * static_cast<std::int64_t>(sizeof(float));
}

std::int64_t Packing::bytes() const {
  return whole_cache_lines(code_bytes() + scale_bytes());
}

at::Tensor Packing::codes_of(const at::Tensor& packed) const {
  return packed.narrow(0, 0, code_bytes());
}

at::Tensor Packing::scales_of(const at::Tensor& packed) const {
  return packed.narrow(0, code_bytes(), scale_bytes()).view(at::kFloat);
}

void Packing::quantise(const at::Tensor& values, const at::Tensor& packed, std::int64_t begin) const {
  const std::int64_t block = block_of(format_), count = values.numel(), blocks = (count + block - 1) / block;
  TORCH_CHECK(begin % block == 0 && begin + count <= elements_, "quantise: elements [", begin, ", ", begin + count,
              ") of ", elements_, ": want a start at a multiple of ", block);
  if (DryRunGuard::is_active() || count == 0) return;
  const std::int64_t bytes_of_block = block * bits_of(format_) / 8;
  const at::Tensor plain = values.detach().to(at::kCPU, at::kFloat).contiguous();
  const at::Tensor codes = at::empty({(count * bits_of(format_) + 7) / 8}, at::kByte), scales = at::empty({blocks});
  const auto* value = plain.const_data_ptr<float>();
  auto* code = codes.mutable_data_ptr<std::uint8_t>();
  auto* scale = scales.mutable_data_ptr<float>();
  const auto quantise_block = format_ == FrozenFormat::kNf4 ? quantise_nf4 : quantise_int8;
  at::parallel_for(0, blocks, kBlocksOfATask, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t b = first; b < last; ++b)
      quantise_block(value + b * block, static_cast<int>(std::min(block, count - b * block)), code + b * bytes_of_block,
                     scale[b]);
  });
  codes_of(packed).narrow(0, begin * bits_of(format_) / 8, codes.numel()).copy_(codes);
  scales_of(packed).narrow(0, begin / block, blocks).copy_(scales);
}

void Packing::dequantise(const at::Tensor& packed, const at::Tensor& values) const {
  const at::ScalarType dtype = values.scalar_type();
  if (!packed.is_cpu() || dtype == at::kHalf) return dequantise_by_operations(packed, values);
  if (DryRunGuard::is_active()) return;
  const at::Tensor codes = codes_of(packed), scales = scales_of(packed);
  if (dtype == at::kFloat) {
    dequantise_blocks<float>(format_, codes, scales, values);
  } else {
    dequantise_blocks<std::uint16_t>(format_, codes, scales, values);
  }
}

void Packing::dequantise_by_operations(const at::Tensor& packed, const at::Tensor& values) const {
  const at::Tensor codes = codes_of(packed), scales = scales_of(packed);
  if (!table_.defined()) table_ = table_of(format_, packed.device());
  const std::int64_t block = block_of(format_);
  for (std::int64_t begin = 0; begin < elements_; begin += kPieceElements) {
    const std::int64_t count = std::min(kPieceElements, elements_ - begin);
    const at::Tensor bytes = codes.narrow(0, begin * bits_of(format_) / 8, count * bits_of(format_) / 8);
    const at::Tensor made = table_.index_select(0, bytes.to(at::kInt)).view({-1, block});
    made.mul_(scales.narrow(0, begin / block, count / block).unsqueeze(1));
    values.narrow(0, begin, count).copy_(made.view({-1}));
  }
}

}  // namespace fsdp
