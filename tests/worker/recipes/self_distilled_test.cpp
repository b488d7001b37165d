// Goal: the heads of self-distillation compute DINOv2's formulas, and a student with heads trains in units, recomputed,
// and dry, as it does plainly. Method: small models in fp32.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <map>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "fsdp/engine/dry_run.h"
#include "fsdp/engine/fully_shard.h"
#include "tests/worker/small_dinov2.h"
#include "tests/worker/small_llama.h"
#include "worker/recipes/dino_loss.h"
#include "worker/train/strategy.h"

namespace worker {
namespace {

using testing::drawn_self_distilled;
using ::testing::HasSubstr;
using testing::parameters_of;
using testing::small_dinov2;
using testing::small_head;
using testing::small_images;

/// A step's losses of two images: two global crops and two local ones each, with masks on the global ones.
at::Tensor loss_of_step(const SelfDistilled& student, const SelfDistilled& teacher) {
  const at::Tensor global = small_images(4, 16, 16), local = small_images(4, 8, 8);
  at::Tensor masks = at::zeros({4, 16}, at::kBool);
  const at::Tensor masked = at::tensor({1, 2, 18, 47}, at::kLong), weights = at::tensor({0.5f, 0.5f, 1.0f, 1.0f});
  masks.flatten().index_fill_(0, masked, 1);
  at::Tensor targets, patches;
  {
    const at::NoGradGuard no_grad;
    const auto told = teacher.forward(global, {}, masked);
    const at::Tensor centre = at::zeros({1, 20});
    targets = centred_softmax(told.dino, centre, 0.07);
    patches = sinkhorn_knopp(told.ibot, 0.07, 3, over_one_rank, over_one_rank);
  }
  const auto of_global = student.forward(global, masks, masked), of_local = student.forward(local);
  return dino_loss(of_global.dino, of_local.dino, targets, 0.1) + ibot_loss(of_global.ibot, patches, weights, 4, 0.1) +
         0.1 * koleo_loss(of_global.cls);
}

TEST(DinoHead, IsAnMlpThenDirectionsThenCosines) {
  const at::NoGradGuard no_grad;
  const auto model = drawn_self_distilled(small_dinov2(), false);
  const DinoHead& head = *model->dino_head;
  auto p = parameters_of(head);
  EXPECT_EQ(p.size(), 3u * 2 + 2);
  EXPECT_EQ(p.at("last_layer.weight_g").sizes(), (at::IntArrayRef{20, 1}));
  EXPECT_EQ(p.at("last_layer.weight_v").sizes(), (at::IntArrayRef{20, 8}));
  const double most = 1 / std::sqrt(8.0);
  EXPECT_LE(p.at("last_layer.weight_v").abs().max().item<double>(), most);
  EXPECT_GT(p.at("last_layer.weight_v").abs().max().item<double>(), 0.8 * most);
  p.at("mlp.0.bias").normal_();
  p.at("mlp.4.bias").normal_();
  const at::Tensor x = at::randn({5, 16});
  const auto layer = [&](const at::Tensor& in, const std::string& name) {
    return in.matmul(p.at(name + ".weight").t()) + p.at(name + ".bias");
  };
  const at::Tensor y = layer(at::gelu(layer(at::gelu(layer(x, "mlp.0")), "mlp.2")), "mlp.4");
  const at::Tensor v = p.at("last_layer.weight_v");
  const at::Tensor cosines = (y / y.norm(2, -1, true)).matmul((v / v.norm(2, 1, true)).t());
  EXPECT_TRUE(at::allclose(head.forward(x), cosines, 1e-5, 1e-6));
  p.at("last_layer.weight_g").copy_(at::arange(20).unsqueeze(1));
  EXPECT_TRUE(at::allclose(head.forward(x), cosines * at::arange(20), 1e-4, 1e-5));
}

TEST(DinoHead, MayHaveOneLayerAndRefusesNone) {
  EXPECT_EQ(parameters_of(DinoHead(16, {.hidden = 24, .bottleneck = 8, .prototypes = 20, .layers = 1}))
                .at("mlp.0.weight")
                .sizes(),
            (at::IntArrayRef{8, 16}));
  try {
    DinoHead(16, {.hidden = 24, .bottleneck = 8, .prototypes = 20, .layers = 0});
    ADD_FAILURE();
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("its number of layers is 0; want at least 1"));
  }
}

TEST(SelfDistilled, AHeadThatServesBothIsEqualToTwoEqualHeads) {
  const at::NoGradGuard no_grad;
  const auto shared = drawn_self_distilled(small_dinov2(), false), two = drawn_self_distilled(small_dinov2(), true);
  const auto from = parameters_of(*shared);
  EXPECT_EQ(parameters_of(*two).size(), from.size() + 8);
  for (auto& [name, value] : parameters_of(*two)) {
    value.copy_(from.at(name.starts_with("ibot_head.") ? "dino_head." + name.substr(10) : name));
  }
  const at::Tensor images = small_images(2, 16, 16), masked = at::tensor({3, 17, 31}, at::kLong);
  const auto one = shared->forward(images, {}, masked), other = two->forward(images, {}, masked);
  EXPECT_TRUE(at::allclose(one.dino, other.dino, 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(one.ibot, other.ibot, 1e-5, 1e-6));
  EXPECT_EQ(one.ibot.sizes(), (at::IntArrayRef{3, 20}));
  // Patch 17 is the second one of the second image.
  const at::Tensor patch = shared->backbone->forward(images).patches()[1][1].unsqueeze(0);
  EXPECT_TRUE(at::allclose(one.ibot[1], shared->dino_head->forward(patch)[0], 1e-5, 1e-6));
  EXPECT_TRUE(at::equal(shared->features(images), one.cls));
  EXPECT_FALSE(shared->forward(images).ibot.defined());
}

TEST(SelfDistilled, TrainsInUnitsAndRecomputedAsItDoesPlainly) {
  for (const bool separate : {false, true}) {
    const auto teacher = drawn_self_distilled(small_dinov2(), separate, 2);
    const auto plain = drawn_self_distilled(small_dinov2(), separate);
    const at::Tensor loss = loss_of_step(*plain, *teacher);
    loss.backward();
    const auto student = drawn_self_distilled(small_dinov2(), separate);
    const auto of_student = parameters_of(*student);
    fsdp::DeviceMesh alone(nullptr, 0, 1, {});
    fsdp::ShardedModel sharded(student, alone);
    for (const auto& block : student->backbone->blocks()) {
      block->wrapper = nested(wrapper_of(sharded.fully_shard(block)), recomputing(*block));
    }
    student->dino_head->wrapper = wrapper_of(sharded.fully_shard(student->dino_head));
    if (separate) student->ibot_head->wrapper = wrapper_of(sharded.fully_shard(student->ibot_head));
    student->wrapper = wrapper_of(sharded.fully_shard(student));
    for (int step = 0; step < 2; ++step) {
      const at::Tensor of_units = loss_of_step(*student, *teacher);
      EXPECT_TRUE(at::allclose(of_units, loss, 1e-6, 1e-7));
      of_units.backward();
    }
    for (const auto& [name, value] : parameters_of(*plain)) {
      ASSERT_TRUE(value.grad().defined()) << name;
      const at::Tensor got = of_student.at(name).grad();
      ASSERT_TRUE(got.defined()) << name;
      EXPECT_TRUE(at::allclose(got, 2 * value.grad(), 1e-4, 1e-6)) << name << ", of two backwards";
    }
  }
}

// `muster plan` runs a step like this.
TEST(SelfDistilled, TrainsDry) {
  auto config = small_dinov2();
  config.num_register_tokens = 2;
  config.use_swiglu_ffn = true;
  config.drop_path_rate = 0.3;
  for (const bool separate : {false, true}) {
    const auto teacher = drawn_self_distilled(config, separate, 2), student = drawn_self_distilled(config, separate);
    const fsdp::DryRunGuard dry;
    const at::Tensor global = at::zeros({4, 3, 16, 16}), local = at::zeros({4, 3, 8, 8}),
                     masks = at::zeros({4, 16}, at::kBool);
    const at::Tensor masked = at::zeros({7}, at::kLong), centre = at::zeros({1, 20});
    at::Tensor targets, patches;
    {
      const at::NoGradGuard no_grad;
      const auto told = teacher->forward(global, {}, masked);
      targets = centred_softmax(told.dino, centre, 0.07);
      patches = sinkhorn_knopp(told.ibot, 0.07, 3, over_one_rank, over_one_rank);
      EXPECT_EQ(patches.sizes(), (at::IntArrayRef{7, 20}));
      EXPECT_EQ(updated_centre(centre, told.dino, 0.9, over_one_rank).sizes(), (at::IntArrayRef{1, 20}));
    }
    const auto of_global = student->forward(global, masks, masked), of_local = student->forward(local);
    const at::Tensor loss = dino_loss(of_global.dino, of_local.dino, targets, 0.1) +
                            ibot_loss(of_global.ibot, patches, at::ones({7}), 4, 0.1) + 0.1 * koleo_loss(of_global.cls);
    loss.backward();
    for (const auto& [name, value] : parameters_of(*student)) {
      ASSERT_TRUE(value.grad().defined()) << name;
      EXPECT_EQ(value.grad().sizes(), value.sizes()) << name;
    }
  }
}

}  // namespace
}  // namespace worker
