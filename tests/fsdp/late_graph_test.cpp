// Goal: a graph of the pretend GPU (late_device.h) shows the mistakes that a capture of CUDA's would show.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "tests/fsdp/error_of.h"
#include "tests/fsdp/late_device.h"

namespace {

using ::testing::HasSubstr;

const c10::impl::VirtualGuardImpl& streams() {
  static const c10::impl::VirtualGuardImpl all(late::kDevice.type());
  return all;
}

at::Tensor filled(double value) {
  return at::full({4}, value, at::TensorOptions().device(late::kDevice));
}

bool is_all(const at::Tensor& tensor, double value) {
  return at::equal(tensor.cpu(), at::full({4}, value));
}

c10::Stream stream() {
  return streams().getStreamFromGlobalPool(late::kDevice);
}

/// Records on a stream of its own what `work` starts.
template <class Work>
std::unique_ptr<fsdp::DeviceGraph> recorded(const Work& work) {
  late::finish();
  const c10::StreamGuard own(stream());
  auto graph = late::make_graph();
  graph->begin();
  work();
  graph->end();
  return graph;
}

void follow(c10::Stream later, c10::Stream earlier) {
  c10::Event reached(late::kDevice.type());
  reached.record(earlier);
  reached.block(later);
}

TEST(LateGraph, RunsNothingWhileItIsRecordedAndReadsTheValuesOfEachReplay) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    late::begin(seed);
    const at::Tensor x = filled(1), sum = filled(0);
    at::Tensor made;
    const auto graph = recorded([&] {
      made = x * 2;
      sum.add_(made);
    });
    EXPECT_TRUE(is_all(sum, 0)) << seed;
    for (int i = 1; i <= 3; ++i) {
      x.fill_(i);
      graph->replay();
      EXPECT_TRUE(is_all(made, 2 * i)) << seed;
    }
    EXPECT_TRUE(is_all(sum, 12)) << seed;
    EXPECT_GE(graph->bytes(), 16);
  }
}

TEST(LateGraph, AMissingWaitWithinItIsSeen) {
  for (const bool waits : {true, false}) {
    int wrong = 0;
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      late::begin(seed);
      const at::Tensor x = filled(1), y = filled(0);
      const auto graph = recorded([&] {
        const c10::Stream own = streams().getStream(late::kDevice), side = stream();
        if (!waits) follow(side, own);  // into the graph, before what it should wait for
        x.add_(1);
        if (waits) follow(side, own);
        {
          const c10::StreamGuard on_side(side);
          y.add_(x);
        }
        follow(own, side);
      });
      graph->replay();
      graph->replay();
      wrong += is_all(y, 2 + 3) ? 0 : 1;
    }
    EXPECT_EQ(wrong > 0, !waits) << wrong << " of 40";
  }
}

TEST(LateGraph, AStreamThatIsNotWaitedForInTheEndIsAnError) {
  late::begin(1);
  const at::Tensor x = filled(1);
  const auto error = error_of([&] {
    recorded([&] {
      const c10::Stream side = stream();
      follow(side, streams().getStream(late::kDevice));
      const c10::StreamGuard on_side(side);
      x.add_(1);
    });
  });
  EXPECT_THAT(error, HasSubstr("was not waited for"));
}

TEST(LateGraph, AWaitForAnEventOnTheOtherSideIsAnError) {
  late::begin(2);
  const at::Tensor x = filled(1);
  c10::Event outside(late::kDevice.type()), inside(late::kDevice.type());
  outside.record(streams().getStream(late::kDevice));
  EXPECT_THAT(error_of([&] { recorded([&] { outside.block(streams().getStream(late::kDevice)); }); }),
              HasSubstr("waits for work outside of it"));
  const auto graph = recorded([&] {
    x.add_(1);
    inside.record(streams().getStream(late::kDevice));
  });
  EXPECT_THAT(error_of([&] { inside.block(streams().getStream(late::kDevice)); }), HasSubstr("an event within it"));
  EXPECT_THAT(error_of([&] { inside.synchronize(); }), HasSubstr("an event within a graph"));
}

TEST(LateGraph, AWaitOfTheHostIsAnError) {
  late::begin(3);
  const at::Tensor x = filled(1);
  EXPECT_THAT(error_of([&] { recorded([&] { x.sum().item<float>(); }); }),
              HasSubstr("the host waits while a graph is recorded"));
  EXPECT_THAT(error_of([&] { recorded([&] { streams().synchronizeDevice(0); }); }),
              HasSubstr("the host waits while a graph is recorded"));
}

TEST(LateGraph, AStreamThatDoesNotWaitForItIsNotInIt) {
  late::begin(4);
  const at::Tensor x = filled(1);
  const auto graph = recorded([&] {
    const c10::StreamGuard elsewhere(stream());
    x.add_(1);
  });
  EXPECT_TRUE(is_all(x, 2)) << "the kernel ran at once";
  graph->replay();
  EXPECT_TRUE(is_all(x, 2));
}

TEST(LateGraph, AReplayWithMemoryThatWasFreedIsAnError) {
  late::begin(5);
  at::Tensor x = filled(1);
  const at::Tensor y = filled(0);
  const auto graph = recorded([&] { y.add_(x); });
  graph->replay();
  x = at::Tensor();
  EXPECT_THAT(error_of([&] { graph->replay(); }), HasSubstr("memory which was freed"));
  const at::Tensor again = filled(1);  // the same address
  EXPECT_THAT(error_of([&] { graph->replay(); }), HasSubstr("memory which was freed"));
}

TEST(LateGraph, KeepsItsMemoryToItself) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    late::begin(seed);
    const at::Tensor x = filled(1), out = filled(0);
    at::Tensor kept;
    auto graph = recorded([&] {
      const at::Tensor dropped = x + 1;
      kept = dropped * 3;
      out.copy_(kept);
    });
    kept = at::Tensor();
    const at::Tensor other = filled(7), another = filled(8);
    graph->replay();
    EXPECT_TRUE(is_all(out, 6)) << seed;
    EXPECT_TRUE(is_all(other, 7) && is_all(another, 8)) << seed;
    late::finish();
  }
}

}  // namespace
