#include "fsdp/optim/moments.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>

#include "fsdp/engine/dry_run.h"
#include "fsdp/formats/code_map.h"
#include "fsdp/optim/moment_blocks.h"
#include "fsdp/text/fnv1a.h"
#include "fsdp/text/splitmix64.h"

namespace fsdp {
namespace {

constexpr std::int64_t kBlock = kMomentBlock;
constexpr std::int64_t kBlocksATask = 256;  // so that a thread gets a stretch that is worth its start
constexpr std::int64_t kUpdatedAtOnce = std::int64_t{1} << 20;  // elements that another device updates at once
static_assert(kBlock == kQuantisedBlock);

/// Places in states_of(Moments::kInt8).
enum : std::size_t { kFirstCodes = 2, kSecondCodes, kFirstScales, kSecondScales };

AdamNumbers numbers_of(const AdamStep& step) {
  const auto in_fp32 = [](double number) { return static_cast<float>(number); };
  return {in_fp32(step.grad_scale), in_fp32(step.decay), in_fp32(step.penalty),
          in_fp32(1 - step.beta1),  in_fp32(step.beta2), in_fp32(1 - step.beta2),
          in_fp32(step.size),       in_fp32(step.root),  in_fp32(step.eps)};
}

/// Calls `update` for the blocks of a slice. Blocks start at multiples of kBlock in the parameter. One that the slice
/// has a part of is updated in copies, whose other elements are zeros. `zero`: so is this first moment.
template <class Value, class Update>
void for_each_block(const SmallMoments& slice, Value* first, Value* second, Value zero, const Update& update) {
  auto* parameter = slice.parameter.mutable_data_ptr<float>();
  auto* gradient = slice.gradient.mutable_data_ptr<float>();
  const std::int64_t begin = slice.begin, end = begin + slice.parameter.numel();
  const auto one = [&](std::int64_t number) {
    const std::int64_t from = std::max(begin, number * kBlock), count = std::min(end, (number + 1) * kBlock) - from;
    const std::int64_t at = from - begin, gap = from - number * kBlock;
    if (count == kBlock)
      return update(MomentBlock<Value>{parameter + at, gradient + at, first + at, second + at, from});
    float parameters[kBlock] = {}, gradients[kBlock] = {};
    Value firsts[kBlock], seconds[kBlock] = {};
    std::fill_n(firsts, kBlock, zero);
    std::copy_n(parameter + at, count, parameters + gap);
    std::copy_n(gradient + at, count, gradients + gap);
    std::copy_n(first + at, count, firsts + gap);
    std::copy_n(second + at, count, seconds + gap);
    update(MomentBlock<Value>{parameters, gradients, firsts, seconds, number * kBlock});
    std::copy_n(parameters + gap, count, parameter + at);
    std::copy_n(gradients + gap, count, gradient + at);
    std::copy_n(firsts + gap, count, first + at);
    std::copy_n(seconds + gap, count, second + at);
  };
  at::parallel_for(begin / kBlock, (end + kBlock - 1) / kBlock, kBlocksATask, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t number = from; number < to; ++number) one(number);
  });
}

void update_bf16_on_cpu(const SmallMoments& slice, const AdamNumbers& n, std::uint64_t key) {
  const auto moments = [&](std::size_t which) {
    return static_cast<std::uint16_t*>(slice.states[which].mutable_data_ptr());
  };
  for_each_block(slice, moments(0), moments(1), std::uint16_t{0},
                 [&](const MomentBlock<std::uint16_t>& block) { update_bf16(block, n, key); });
}

void update_int8_on_cpu(const SmallMoments& slice, const AdamNumbers& n) {
  const auto codes = [&](std::size_t which) { return slice.states[which].mutable_data_ptr<std::uint8_t>(); };
  const auto scales = [&](std::size_t which) { return slice.states[which].mutable_data_ptr<float>(); };
  auto *first = scales(kFirstScales), *second = scales(kSecondScales);
  const auto zero = static_cast<std::uint8_t>(code_map(true).lowest[0]);
  for_each_block(slice, codes(kFirstCodes), codes(kSecondCodes), zero, [&](const MomentBlock<std::uint8_t>& block) {
    const std::int64_t number = (block.place - slice.begin) / kBlock;
    update_int8(block, n, first[number], second[number]);
  });
}

// Updates on another device.

void adam(const SmallMoments& slice, at::Tensor& first, at::Tensor& second, const AdamNumbers& n) {
  const at::Tensor &parameter = slice.parameter, &gradient = slice.gradient;
  if (n.scale != 1) gradient.div_(n.scale);
  const at::Tensor slope = n.penalty == 0 ? gradient : gradient.add(parameter.mul(n.penalty));
  first.add_(slope.sub(first).mul_(n.left1));
  second.mul_(n.beta2).add_(slope.mul(n.left2).mul_(slope));
  if (n.decay != 0) parameter.sub_(parameter.mul(n.decay));
  parameter.sub_(first.mul(n.size).div_(second.sqrt().div_(n.root).add_(n.eps)));
}

/// random_bits() of `count` places from `place` on, each in an int64.
at::Tensor random_bits(std::int64_t place, std::int64_t count, std::uint64_t key, const at::Device& device) {
  constexpr std::int64_t kWord = 0xffffffff;
  const RandomKeys keys(key, place);
  at::Tensor x = at::arange(place & kWord, (place & kWord) + count, at::TensorOptions(at::kLong).device(device));
  const auto fold = [&](std::int64_t by) { x.bitwise_xor_(x.bitwise_right_shift(by)); };
  // A factor above 2^31 stands as a negative number, so that no product leaves int64.
  const auto multiply = [&](std::uint32_t by) {
    x.mul_(std::int64_t{static_cast<std::int32_t>(by)}).bitwise_and_(kWord);
  };
  x.bitwise_xor_(std::int64_t{keys.first});
  fold(16);
  multiply(kFirstFactor);
  fold(15);
  x.add_(std::int64_t{keys.second}).bitwise_and_(kWord);
  multiply(kSecondFactor);
  fold(16);
  return x;
}

void round_into(const at::Tensor& kept, const at::Tensor& value, const at::Tensor& random) {
  kept.copy_(value.view(at::kInt).add(random.to(at::kInt)).bitwise_and_(-0x10000).view(at::kFloat));
}

void update_bf16_piece(const SmallMoments& piece, const AdamNumbers& n, std::uint64_t key) {
  at::Tensor first = piece.states[0].to(at::kFloat), second = piece.states[1].to(at::kFloat);
  adam(piece, first, second, n);
  const at::Tensor random = random_bits(piece.begin, piece.parameter.numel(), key, piece.parameter.device());
  round_into(piece.states[0], first, random.bitwise_and(0xffff));
  round_into(piece.states[1], second, random.bitwise_right_shift(16));
}

at::Tensor on(const at::Device& device, const std::array<float, CodeMap::kCodes>& values, int count) {
  return at::from_blob(const_cast<float*>(values.data()), {count}, at::kFloat).clone().to(device);
}

/// `flat`, with zeros behind it up to whole blocks: [blocks, kBlock].
at::Tensor in_blocks(const at::Tensor& flat) {
  const std::int64_t gap = (kBlock - flat.numel() % kBlock) % kBlock;
  return (gap == 0 ? flat : at::constant_pad_nd(flat, {0, gap})).view({-1, kBlock});
}

at::Tensor values_of(const at::Tensor& codes, const at::Tensor& scales, bool is_signed) {
  const at::Tensor map = on(codes.device(), code_map(is_signed).values, CodeMap::kCodes);
  const at::Tensor values = in_blocks(map.take(codes.to(at::kLong))) * scales.unsqueeze(1);
  return values.view({-1}).narrow(0, 0, codes.numel());
}

void quantise(const at::Tensor& values, bool is_signed, const at::Tensor& codes, const at::Tensor& scales) {
  const at::Tensor blocks = in_blocks(values);
  scales.copy_(blocks.abs().amax({1}).clamp_min_(kLeastScale));
  const at::Tensor shares = blocks.div(scales.unsqueeze(1)).view({-1}).narrow(0, 0, values.numel());
  const at::Tensor middles = on(codes.device(), code_map(is_signed).middles, CodeMap::kCodes - 1);
  codes.copy_(at::bucketize(shares, middles, /*out_int32=*/true, /*right=*/true));
}

void update_int8_piece(const SmallMoments& piece, const AdamNumbers& n) {
  const auto& states = piece.states;
  at::Tensor first = values_of(states[kFirstCodes], states[kFirstScales], true);
  at::Tensor second = values_of(states[kSecondCodes], states[kSecondScales], false);
  adam(piece, first, second, n);
  quantise(first, true, states[kFirstCodes], states[kFirstScales]);
  quantise(second, false, states[kSecondCodes], states[kSecondScales]);
}

/// Pieces start at multiples of kUpdatedAtOnce in the parameter.
template <class Update>
void for_each_piece(const SmallMoments& slice, const std::vector<StateSpec>& states, const Update& update) {
  const std::int64_t end = slice.begin + slice.parameter.numel();
  for (std::int64_t from = slice.begin, to = 0; from < end; from = to) {
    to = std::min(end, (from / kUpdatedAtOnce + 1) * kUpdatedAtOnce);
    const auto part = [&](const at::Tensor& flat, const StateForm& form) {
      return flat.narrow(0, (from - slice.begin) / form.block, form.values(to - from));
    };
    SmallMoments piece{part(slice.parameter, {}), part(slice.gradient, {}), {}, from};
    for (std::size_t s = 0; s < states.size(); ++s)
      piece.states.push_back(slice.states[s].defined() ? part(slice.states[s], states[s].form) : at::Tensor());
    update(piece);
  }
}

}  // namespace

std::vector<StateSpec> states_of(Moments moments) {
  if (moments == Moments::kFp32) return {"exp_avg", "exp_avg_sq"};
  if (moments == Moments::kBf16) return {{"exp_avg_bf16", {at::kBFloat16}}, {"exp_avg_sq_bf16", {at::kBFloat16}}};
  const auto is_plain = [](const ParameterInfo& parameter) { return has_plain_moments(Moments::kInt8, parameter); };
  const auto is_quantised = [](const ParameterInfo& parameter) {
    return !has_plain_moments(Moments::kInt8, parameter);
  };
  const StateForm plain{at::kFloat, 1, is_plain}, codes{at::kByte, 1, is_quantised},
      scales{at::kFloat, kQuantisedBlock, is_quantised};
  return {{"exp_avg", plain},          {"exp_avg_sq", plain},      {"exp_avg_codes", codes},
          {"exp_avg_sq_codes", codes}, {"exp_avg_scales", scales}, {"exp_avg_sq_scales", scales}};
}

bool has_plain_moments(Moments moments, const ParameterInfo& parameter) {
  return moments == Moments::kFp32 || (moments == Moments::kInt8 && parameter.numel < kLeastQuantised);
}

std::uint64_t random_key(std::uint64_t seed, std::string_view parameter, std::uint64_t step) {
  std::uint64_t state = Fnv1a(seed).add(parameter).add(step).value();
  return splitmix64(state);
}

void update_moments(Moments moments, const SmallMoments& slice, const AdamStep& step, std::uint64_t key) {
  if (!slice.parameter.is_cpu()) return update_by_operations(moments, slice, step, key);
  if (DryRunGuard::is_active()) return;
  moments == Moments::kBf16 ? update_bf16_on_cpu(slice, numbers_of(step), key)
                            : update_int8_on_cpu(slice, numbers_of(step));
}

void update_by_operations(Moments moments, const SmallMoments& slice, const AdamStep& step, std::uint64_t key) {
  const AdamNumbers numbers = numbers_of(step);
  for_each_piece(slice, states_of(moments), [&](const SmallMoments& piece) {
    moments == Moments::kBf16 ? update_bf16_piece(piece, numbers, key) : update_int8_piece(piece, numbers);
  });
}

}  // namespace fsdp
