// Goal: the exit code says what kind of end a rank had, whoever throws. Method: the exceptions of LibTorch as it throws
// them on the CPU, and their kinds with the texts that CUDA, cuBLAS and NCCL gave on an H200.
#include "worker/train/run.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <new>
#include <stdexcept>
#include <string>

#include "base/usage_error.h"
#include "spec/exit_codes.h"

namespace worker {
namespace {

template <class Call>
Outcome of(const Call& call) {
  try {
    call();
  } catch (...) {
    return outcome_of(std::current_exception());
  }
  return {spec::kExitDone, "nothing was thrown"};
}

template <class Error = c10::Error>
Outcome of_libtorch(const std::string& text) {
  return of([&] { throw Error(c10::SourceLocation{__func__, __FILE__, __LINE__}, text); });
}

constexpr const char* kRemedy = "; use a smaller train.micro_batch_size, or more ranks";

TEST(Failure, MemoryThatLacksIsToldWhoeverSaysSo) {
  const auto of_the_host = of([] { (void)torch::empty({std::int64_t{1} << 60}, torch::kUInt8); });
  EXPECT_EQ(of_the_host.code, spec::kExitOutOfMemory) << of_the_host.reason;
  EXPECT_EQ(of([] { throw std::bad_alloc(); }).reason, std::string("out of memory") + kRemedy);
  EXPECT_EQ(of_libtorch<c10::OutOfMemoryError>("CUDA is full").code, spec::kExitOutOfMemory);
  for (const char* text : {"CUDA error: out of memory", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `x`",
                           "ncclUnhandledCudaError: Cuda failure 2 'out of memory'"}) {
    const auto outcome = of_libtorch(text);
    EXPECT_EQ(outcome.code, spec::kExitOutOfMemory);
    EXPECT_EQ(outcome.reason, std::string(text) + kRemedy);
  }
}

TEST(Failure, AnErrorOfCudaIsToldWithoutItsAdviceToDevelopers) {
  const std::string advice =
      "\nSearch for `cudaErrorIllegalAddress' in https://docs.nvidia.com for more information.\nCUDA kernel errors "
      "might be asynchronously reported at some other API call.\nFor debugging consider passing "
      "CUDA_LAUNCH_BLOCKING=1\n";
  const std::string text = "CUDA error: an illegal memory access was encountered";
  const auto outcome = of_libtorch(text + advice);
  EXPECT_EQ(outcome.code, spec::kExitFailed);
  EXPECT_EQ(outcome.reason, text);
  EXPECT_EQ(of_libtorch(text + advice.substr(advice.find("\nCUDA kernel"))).reason, text);
}

TEST(Failure, WhatIsWrongWithTheJobIsNotTriedAgain) {
  EXPECT_EQ(of([] { throw base::UsageError("the run file\nis wrong"); }).code, spec::kExitNeverRequeue);
  EXPECT_EQ(of([] { throw base::UsageError("the run file\nis wrong"); }).reason, "the run file is wrong");
  EXPECT_EQ(of([] { throw std::runtime_error("the disk is gone"); }).code, spec::kExitFailed);
}

}  // namespace
}  // namespace worker
