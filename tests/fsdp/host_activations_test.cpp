// Goal: tensors that wait on the host come back as they were, and memory is counted. Method: the CPU as the device; the
// order of streams is in streams_test.cpp.
#include "fsdp/engine/host_activations.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "fsdp/engine/dry_run.h"
#include "fsdp/memory/storage.h"

namespace {

using fsdp::HostActivations;

TEST(HostActivations, ComeBackBitByBitAsOftenAsTheyAreWanted) {
  HostActivations host(at::kCPU, /*least_bytes=*/0);
  const at::Tensor plain = at::randn({3, 5}), turned = at::randn({4, 6}).t(), ids = at::arange(7);
  const auto waiting = host.put({plain.clone(), at::Tensor(), turned.clone(), ids.clone()});
  for (int time = 0; time < 2; ++time) {
    const auto back = host.get(waiting);
    ASSERT_EQ(back.size(), 4U);
    EXPECT_TRUE(at::equal(back[0], plain));
    EXPECT_FALSE(back[1].defined());
    EXPECT_TRUE(at::equal(back[2], turned));
    EXPECT_EQ(back[2].strides(), turned.strides());
    EXPECT_TRUE(at::equal(back[3], ids));
  }
}

TEST(HostActivations, SmallTensorsAndThoseWithGapsStayWhereTheyAre) {
  HostActivations host(at::kCPU, /*least_bytes=*/40);
  const at::Tensor small = at::ones({9}), large = at::ones({10}), gaps = at::ones({10, 2}).select(1, 0),
                   expanded = at::ones({1}).expand({20});
  const auto waiting = host.put({small, large, gaps, expanded});
  const auto back = host.get(waiting);
  EXPECT_TRUE(back[0].is_alias_of(small));
  EXPECT_FALSE(back[1].is_alias_of(large));
  EXPECT_TRUE(back[2].is_alias_of(gaps));
  EXPECT_TRUE(back[3].is_alias_of(expanded));
  EXPECT_EQ(host.bytes(), 40);
}

TEST(HostActivations, FreeTheDeviceAndCountTheHost) {
  HostActivations host(at::kCPU, 0);
  const fsdp::CountTensorBytes count;
  auto first = host.put({at::ones({1000})}), second = host.put({at::ones({500})});
  EXPECT_EQ(host.bytes(), 6000);
  first.reset();
  EXPECT_EQ(host.bytes(), 2000);
  EXPECT_EQ(host.peak_bytes(), 6000);
  second.reset();
  EXPECT_EQ(host.bytes(), 0);
  EXPECT_EQ(fsdp::TensorBytes::current()->now(), 0);
}

TEST(HostActivations, InADryRunTakeNoMemoryOfTheHost) {
  HostActivations host(at::kCPU, 0);
  const fsdp::CountTensorBytes count;
  const fsdp::DryRunGuard dry;
  const auto waiting = host.put({at::empty({1000})});
  EXPECT_EQ(fsdp::TensorBytes::current()->now(), 0);
  EXPECT_EQ(host.bytes(), 4000);
  const auto back = host.get(waiting);
  EXPECT_EQ(fsdp::TensorBytes::current()->now(), 4000) << "on the device again";
  EXPECT_EQ(back[0].sizes(), at::IntArrayRef({1000}));
}

}  // namespace
