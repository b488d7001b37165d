#include "worker/train/failure.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "agent/rank/reporter.h"
#include "base/usage_error.h"
#include "fsdp/files/checkpoint.h"
#include "spec/exit_codes.h"

namespace worker {
namespace {

constexpr const char* kRemedy = "; use a smaller train.micro_batch_size, or more ranks";

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

/// LibTorch has an exception of its own for its allocator on GPUs alone. All others say it in words: the CPU's
/// allocator, CUDA (contexts, kernels, pinned memory), cuBLAS and cuDNN, NCCL.
bool lacks_memory(const c10::Error& error, std::string_view what) {
  constexpr std::array<std::string_view, 3> kWords = {"out of memory", "can't allocate memory", "ALLOC_FAILED"};
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         std::ranges::any_of(kWords, [&](auto words) { return what.find(words) != std::string_view::npos; });
}

Outcome outcome_of(const c10::Error& error) {
  std::string what = error.what_without_backtrace();
  for (const char* advice : {"\nSearch for `cuda", "\nCUDA kernel errors might be"})
    what.resize(std::min(what.size(), what.find(advice)));
  what = one_line(std::move(what));
  if (!lacks_memory(error, what)) return {spec::kExitFailed, what};
  return {spec::kExitOutOfMemory, what + kRemedy};
}

}  // namespace

Outcome outcome_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const base::UsageError& error) {
    return {spec::kExitNeverRequeue, one_line(error.what())};
  } catch (const std::invalid_argument& error) {
    return {spec::kExitNeverRequeue, one_line(error.what())};
  } catch (const agent::rank::FencedError& error) {
    return {spec::kExitFenced, one_line(error.what())};
  } catch (const fsdp::CheckpointFenced& error) {
    return {spec::kExitFenced, one_line(error.what())};
  } catch (const std::bad_alloc&) {
    return {spec::kExitOutOfMemory, std::string("out of memory") + kRemedy};
  } catch (const c10::Error& error) {
    return outcome_of(error);
  } catch (const std::exception& error) {
    return {spec::kExitFailed, one_line(error.what())};
  } catch (...) {
    return {spec::kExitFailed, "an unknown exception"};
  }
}

}  // namespace worker
