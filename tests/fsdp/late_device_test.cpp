// Goal: the pretend GPU (late_device.h) shows the mistakes that a GPU would show, and no others.
#include "tests/fsdp/late_device.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <functional>

namespace {

TEST(LateDevice, RunsNothingBeforeItIsAskedOrTheDiceSaySo) {
  bool late = false;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    late::begin(seed);
    const at::Tensor x = at::ones({3}, at::TensorOptions().device(late::kDevice));
    const at::Tensor y = x * 2 + 1;
    late |= late::counts().kernels == 0;
    EXPECT_TRUE(at::equal(y.cpu(), at::full({3}, 3.0)));
  }
  EXPECT_TRUE(late);
}

/// How many seeds compute `work` wrong.
int wrong_seeds(const std::function<bool()>& is_right) {
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    late::begin(seed);
    wrong += is_right() ? 0 : 1;
  }
  return wrong;
}

const c10::impl::VirtualGuardImpl& streams() {
  static const c10::impl::VirtualGuardImpl all(late::kDevice.type());
  return all;
}

TEST(LateDevice, AMissingWaitBetweenStreamsIsSeen) {
  for (const bool waits : {true, false}) {
    const int wrong = wrong_seeds([&] {
      const at::Tensor x = at::zeros({4}, at::TensorOptions().device(late::kDevice));
      late::finish();
      c10::Event written(late::kDevice.type());
      const c10::Stream side = streams().getStreamFromGlobalPool(late::kDevice);
      {
        const c10::StreamGuard on_side(side);
        x.fill_(5);
        written.record(side);
      }
      if (waits) written.block(streams().getStream(late::kDevice));
      return at::equal((x + 1).cpu(), at::full({4}, 6.0));
    });
    EXPECT_EQ(wrong > 0, !waits) << wrong << " of 40";
  }
}

TEST(LateDevice, MemoryThatAnotherStreamStillReadsIsSeenWhenItIsFreed) {
  for (const bool waits : {true, false}) {
    const int wrong = wrong_seeds([&] {
      at::Tensor x = at::full({4}, 2.0, at::TensorOptions().device(late::kDevice)), y;
      late::finish();
      c10::Event read(late::kDevice.type());
      const c10::Stream side = streams().getStreamFromGlobalPool(late::kDevice);
      {
        const c10::StreamGuard on_side(side);
        y = x + 1;
        read.record(side);
      }
      if (waits) read.block(streams().getStream(late::kDevice));
      x = at::Tensor();
      late::finish();
      return at::equal(y.cpu(), at::full({4}, 3.0));
    });
    EXPECT_EQ(wrong > 0, !waits) << wrong << " of 40";
  }
}

TEST(LateDevice, AKernelOfFreedMemoryIsAnError) {
  late::begin(1);
  const at::Tensor x = at::ones({4}, at::TensorOptions().device(late::kDevice));
  x.storage().set_data_ptr_noswap(c10::DataPtr(nullptr, late::kDevice));
  EXPECT_THROW(x.add_(1), c10::Error);
}

TEST(LateDevice, AFailureOfAKernelIsToldAtTheNextWait) {
  late::begin(2);
  const auto on_device = at::TensorOptions().device(late::kDevice);
  const at::Tensor table = at::zeros({3, 2}, on_device), place = at::full({1}, 7, on_device.dtype(at::kLong));
  EXPECT_THROW(at::index_select(table, 0, place).cpu(), c10::Error);
  late::begin(3);
  late::finish();
}

}  // namespace
