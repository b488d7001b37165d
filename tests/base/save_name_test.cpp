// Goal: a part of a save is told from a checkpoint of one step of many, by the names that libraries and people give.
// Method: names of transformers, TensorFlow, llama.cpp, DeepSpeed, Megatron, Lightning, nanoGPT and of loops by hand.
#include "base/torn_save.h"

#include <gtest/gtest.h>

namespace base {
namespace {

using IsPart = NumberOf::IsPart;

TEST(SaveName, APartIsToldFromAStepOfSoMany) {
  struct {
    const char* name;
    IsPart is_part;
    std::int64_t number, count;
  } const cases[] = {{"model-00001-of-00003.safetensors", IsPart::kYes, 1, 3},
                     {"pytorch_model-00002-of-00163.bin", IsPart::kYes, 2, 163},
                     {"00001-of-00002.safetensors", IsPart::kYes, 1, 2},
                     {"step-100-model-00001-of-00003.safetensors", IsPart::kYes, 1, 3},
                     {"ckpt-1.data-00000-of-00001", IsPart::kYes, 0, 1},
                     {"llama-7b-q4-00001-of-00004.gguf", IsPart::kYes, 1, 4},
                     {"rank-0-of-8.pt", IsPart::kYes, 0, 8},
                     {"state_shard_1_of_3.pt", IsPart::kYes, 1, 3},
                     {"step100-of-4000.pt", IsPart::kNo, 100, 4000},
                     {"step_00100-of-04000.pt", IsPart::kNo, 100, 4000},
                     {"global_step_1_of_9", IsPart::kNo, 1, 9},
                     {"epoch-01-of-09.pt", IsPart::kNo, 1, 9},
                     {"best-7-of-3.pt", IsPart::kNo, 7, 3},
                     {"100-of-4000.pt", IsPart::kIfListed, 100, 4000},
                     {"model-1-of-3.safetensors", IsPart::kIfListed, 1, 3},
                     {"model-00100-of-04000.pt", IsPart::kIfListed, 100, 4000},
                     {"checkpoint-00001-of-00003.pt", IsPart::kIfListed, 1, 3}};
  for (const auto& one : cases) {
    const auto found = number_of(one.name);
    ASSERT_TRUE(found) << one.name;
    EXPECT_EQ(found->is_part, one.is_part) << one.name;
    EXPECT_EQ(found->number, one.number) << one.name;
    EXPECT_EQ(found->count, one.count) << one.name;
  }
  for (const char* name :
       {"epoch=1-step=100.ckpt", "ckpt.pt", "mp_rank_00_model_states.pt", "iter_0000100", "best-of-breed.txt", "of-3",
        "__0_0.distcp", "zero_pp_rank_0_mp_rank_00_optim_states.pt", "1-of-", "-of-3", "proof-of-2", ""}) {
    EXPECT_FALSE(number_of(name)) << name;
  }
}

TEST(SaveName, WhatComesBeforeAndBehindIsKept) {
  const auto found = number_of("a-00001-of-00003.b.safetensors");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->before, "a-");
  EXPECT_EQ(found->after, ".b.safetensors");
  EXPECT_EQ(found->count_text, "00003");
}

}  // namespace
}  // namespace base
