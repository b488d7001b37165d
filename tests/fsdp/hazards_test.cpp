// Goal: what people do to a model beside plain training gives the right result or an error that names the mistake.
// Method: small modules on 1 to 4 ranks, compared with plain autograd or with the text of the error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.h"
#include "ranks.h"
#include "small_model.h"

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Le;

// Two units of the same size, so only names tell their bytes apart.
TEST(Hazard, AnotherOrderOfUnitsOnAnotherRankIsAnErrorThatNamesTheUnit) {
  run_ranks(
      2,
      [](fsdp::DeviceMesh& mesh) {
        Trainer trainer(mesh);
        const auto& units = trainer.sharded.units();
        const int first = mesh.rank();
        EXPECT_THAT(error_of([&] { units[first]->wait_unsharded(), units[1 - first]->wait_unsharded(); }),
                    AllOf(HasSubstr("all-gather of block" + std::to_string(first)), HasSubstr("another unit")));
      },
      std::chrono::milliseconds(500));
}

TEST(Hazard, AnotherKindOfCollectiveOnAnotherRankIsAnError) {
  run_ranks(
      2,
      [](fsdp::DeviceMesh& mesh) {
        const at::Tensor buffer = at::zeros({8}), part = at::zeros({4});
        const auto call = [&] {
          if (mesh.rank() == 0) mesh.shard().all_gather_into(buffer, "layer")->wait();
          if (mesh.rank() == 1) mesh.shard().reduce_scatter(buffer, part, "layer")->wait();
        };
        EXPECT_THAT(error_of(call), HasSubstr("of layer on rank " + std::to_string(mesh.rank())));
      },
      std::chrono::milliseconds(500));
}

}  // namespace
