// Goal: the files of a checkpoint folder are told apart by the save that they belong to, whoever wrote them.
// Method: the paths that libraries and loops write.
#include "agent/watch/checkpoint_name.h"

#include <gtest/gtest.h>

namespace agent::watch {
namespace {

using Names = std::vector<std::string>;

/// "name" of each file's save; with "?" behind it where nothing tells a step.
Names saves(const Names& files) {
  Names out;
  for (const auto& save : saves_of(files)) out.push_back(save.name + (save.has_step ? "" : " ?"));
  return out;
}

TEST(Saves, AFolderThatTellsAStepIsOneWithAllBelowIt) {
  EXPECT_EQ(saves({"checkpoint-500/model-00001-of-00003.safetensors", "checkpoint-500/rng_state_0.pth",
                   "run/checkpoint-500/global_step499/zero_pp_rank_0_mp_rank_00_optim_states.pt",
                   "iter_0000100/mp_rank_00/model_optim_rng.pt", "iter_0000100/mp_rank_01/model_optim_rng.pt",
                   "500/default/0/weights.bin", "global_step100/__0_0.distcp", "checkpoint_0/model_1.safetensors"}),
            (Names{"checkpoint-500", "checkpoint-500", "run/checkpoint-500", "iter_0000100", "iter_0000100", "500",
                   "global_step100", "checkpoint_0"}));
}

TEST(Saves, AnEpochMayHoldSavesOfSteps) {
  EXPECT_EQ(
      saves({"epoch_3/step-100/a.pt", "epoch_3/step_200.pt", "epoch_3/model_1.safetensors", "epoch_3/optimizer.bin"}),
      (Names{"epoch_3/step-100", "epoch_3/step 200", "epoch_3", "epoch_3"}));
}

TEST(Saves, FilesOfTheSameStepBelongTogether) {
  EXPECT_EQ(
      saves({"lightning_logs/version_0/checkpoints/epoch=1-step=100.ckpt",
             "lightning_logs/version_0/checkpoints/epoch=2-step=200.ckpt", "lightning_logs/version_0/hparams.yaml",
             "out/step-40.model.pt", "out/step-40.optim.pt", "weights.12.h5", "Epoch_12.pt"}),
      (Names{"lightning_logs/version_0/checkpoints/step 100", "lightning_logs/version_0/checkpoints/step 200",
             "lightning_logs/ ?", "out/step 40", "out/step 40", "step 12", "epoch 12"}));
}

TEST(Saves, WhatTellsNoStepBelongsToItsFolderAtTheTop) {
  EXPECT_EQ(saves({"out/ckpt.pt", "out/deep/config.json", "ckpt.pt", "config.json", "model-00001-of-00003.safetensors",
                   "model-00002-of-00003.safetensors", "out/model-00001-of-00003.safetensors"}),
            (Names{"out/ ?", "out/ ?", "ckpt.pt ?", "config.json ?", "model-#-of-00003.safetensors ?",
                   "model-#-of-00003.safetensors ?", "out/ ?"}));
}

TEST(Saves, ANumberBesideFilesOfRanksIsARanks) {
  EXPECT_EQ(saves({"last/model.safetensors", "last/model_1.safetensors", "last/random_states_1.pkl", "dcp/__0_0.distcp",
                   "dcp/.metadata", "best/model_1.pt", "best/model_2.pt"}),
            (Names{"last/ ?", "last/ ?", "last/ ?", "dcp/ ?", "dcp/ ?", "best/step 1", "best/step 2"}));
}

}  // namespace
}  // namespace agent::watch
