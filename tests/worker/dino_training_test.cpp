// Goal: twenty steps of self-distillation give the losses, the student, the teacher and the centre that a second
// computation gives, at one rank and at two. Method: tests/peers/dino_judge.py writes weights and batches, and trains
// with transformers' backbone. Ranks are threads. Skipped without a Python for it; see peer_python.h.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "fsdp/adam.h"
#include "fsdp/average.h"
#include "fsdp/fully_shard.h"
#include "fsdp/safetensors.h"
#include "fsdp/tensor_files.h"
#include "models/config_json.h"
#include "models/dinov2/heads.h"
#include "models/dinov2/hf.h"
#include "peer_python.h"
#include "ranks.h"
#include "recipes/dino_loss.h"
#include "recipes/dino_targets.h"
#include "train/unit_wrapper.h"

namespace worker {
namespace {

namespace fs = std::filesystem;
using testing::read_file;
using testing::TemporaryFolder;

constexpr DinoHeadSizes kHead{.hidden = 24, .bottleneck = 8, .prototypes = 32, .layers = 3};

/// A student or a teacher in units, with the weights of a folder.
struct Distilling {
  Distilling(const fs::path& folder, fsdp::DeviceMesh& mesh)
      : module(std::make_shared<SelfDistilled>(
            schema::bind<schema::Dinov2>(schema::dinov2(),
                                         dinov2_family().read(fsdp::Json::parse(read_file(folder / kModelConfigFile)))),
            kHead, /*separate_ibot_head=*/false)),
        sharded(module, mesh) {
    for (const auto& block : module->backbone->blocks()) block->wrapper = wrapper_of(sharded.fully_shard(block));
    module->dino_head->wrapper = wrapper_of(sharded.fully_shard(module->dino_head));
    module->wrapper = wrapper_of(sharded.fully_shard(module));
    fsdp::load_tensors(sharded, fsdp::TensorFiles(folder / fsdp::kModelFile));
  }

  std::shared_ptr<SelfDistilled> module;
  fsdp::ShardedModel sharded;
};

/// What a rank has of a step's batch.
struct RankBatch {
  RankBatch(const fsdp::SafetensorsReader& batches, std::int64_t step, const fsdp::DeviceMesh& mesh) {
    const auto of_step = [&](const char* name) { return batches.tensor(name)[step].clone(); };
    const at::Tensor first = of_step("first"), second = of_step("second");
    images = first.size(0) / mesh.world_size();
    const std::int64_t begin = mesh.rank() * images;
    global = at::cat({first.narrow(0, begin, images), second.narrow(0, begin, images)});
    local = of_step("local").narrow(1, begin, images).flatten(0, 1);
    masks = of_step("masks").narrow(1, begin, images).flatten(0, 1);
    masked = at::nonzero(masks.flatten()).squeeze(1);
    const at::Tensor share = 1 / masks.sum(1, /*keepdim=*/true).clamp_min(1).to(at::kFloat);
    weights = share.expand_as(masks).reshape(-1).index_select(0, masked);
  }

  std::int64_t images = 0;
  at::Tensor global, local, masks, masked, weights;
};

/// What a rank is left with.
struct Trained {
  std::vector<double> losses;
  at::Tensor centre;
  std::map<std::string, at::Tensor> student, teacher;
};

Trained distil(const fs::path& folder, fsdp::DeviceMesh& mesh) {
  Distilling student(folder, mesh), teacher(folder, mesh);
  fsdp::AdamWOptions options;
  options.beta2 = 0.999;
  options.weight_decay = 0.04;
  fsdp::AdamW optimizer(student.sharded, options);
  const ReduceOverRanks sum = [&](at::Tensor& values) { mesh.shard().all_reduce(values); };
  const ReduceOverRanks max = [&](at::Tensor& values) { mesh.shard().all_reduce(values, fsdp::Reduction::kMax); };
  const fsdp::SafetensorsReader batches(folder / "batches.safetensors");
  Trained out;
  out.centre = at::zeros({1, kHead.prototypes});
  for (std::int64_t step = 0; step < 20; ++step) {
    const RankBatch batch(batches, step, mesh);
    at::Tensor targets, of_patches;
    {
      const at::NoGradGuard no_grad;
      const auto told = teacher.module->forward(batch.global, {}, batch.masked);
      targets = centred_softmax(told.dino, out.centre, 0.07);
      of_patches = sinkhorn_knopp(told.ibot, 0.07, 3, sum, max);
      out.centre = updated_centre(out.centre, told.dino, 0.9, sum);
    }
    const auto global = student.module->forward(batch.global, batch.masks, batch.masked);
    const auto local = student.module->forward(batch.local);
    const at::Tensor loss = dino_loss(global.dino, local.dino, targets, 0.1) +
                            ibot_loss(global.ibot, of_patches, batch.weights, 2 * batch.images, 0.1) +
                            0.1 * koleo_loss(global.cls);
    loss.backward();  // the engine takes the mean over the ranks
    out.losses.push_back(mesh.control().all_reduce(loss.item<double>()) / mesh.world_size());
    optimizer.step(1e-3);
    student.sharded.zero_grad();
    fsdp::average_into(teacher.sharded, student.sharded, 0.9);
  }
  for (const auto& [name, value] : student.sharded.gather_full_state(false)) out.student.emplace(name, value.clone());
  for (const auto& [name, value] : teacher.sharded.gather_full_state(false)) out.teacher.emplace(name, value.clone());
  return out;
}

void expect_weights(const std::map<std::string, at::Tensor>& got, const fsdp::SafetensorsReader& want,
                    const std::string& prefix) {
  EXPECT_GT(got.size(), 40u);
  for (const auto& [name, value] : got) {
    const at::Tensor expected = want.tensor(prefix + name);
    EXPECT_LE((value - expected).norm().item<double>(), 1e-4 * expected.norm().item<double>()) << prefix << name;
  }
}

TEST(DinoTraining, AgreesAtOneRankAndAtTwo) {
  const std::string python = testing::peer_python();
  if (python.empty()) GTEST_SKIP() << testing::kNoPeerPython;
  const TemporaryFolder judged;
  testing::run_peer(python, "dino_judge.py", "'" + judged.path().native() + "' training", judged.path());
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    std::mutex mutex;
    Trained trained;
    run_ranks(ranks, [&](fsdp::DeviceMesh& mesh) {
      Trained mine = distil(judged / "training", mesh);
      const std::lock_guard lock(mutex);
      if (mesh.rank() == 0) trained = std::move(mine);
    });
    const fsdp::SafetensorsReader want(judged / "training" / (std::to_string(ranks) + ".safetensors"));
    const at::Tensor losses = want.tensor("losses");
    ASSERT_EQ(static_cast<std::int64_t>(trained.losses.size()), losses.numel());
    for (std::int64_t step = 0; step < losses.numel(); ++step) {
      const double expected = losses[step].item<double>();
      EXPECT_NEAR(trained.losses[static_cast<std::size_t>(step)], expected, 1e-4 * expected) << "step " << step + 1;
    }
    testing::expect_close(trained.centre, want.tensor("centre"), "the centre");
    expect_weights(trained.student, want, "student/");
    expect_weights(trained.teacher, want, "teacher/");
  }
}

}  // namespace
}  // namespace worker
