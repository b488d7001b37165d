#include "train/resume_checks.h"

#include <cstdint>
#include <string>

#include "data/sampler.h"
#include "rank/errors.h"

namespace worker {
namespace {

/// The value of ShardedSampler::kOrder in checkpoints that do not record it.
constexpr std::int64_t kFirstOrder = 1;

}  // namespace

void check_same_text(const Recipe& recipe, const fsdp::Json& extra, const std::filesystem::path& path) {
  const std::string& then = extra.at("data").as_string();
  const std::string now = recipe.data_fingerprint();
  if (then == now) return;
  std::string remedy = "restore it or its token file in the cache folder";
  const fsdp::Json* asked = extra.find("source");
  if (asked != nullptr && asked->as_string() != recipe.data_source()) {
    remedy =
        "the run file asks for " + recipe.data_source() + ", then for " + asked->as_string() + ": restore the run file";
  }
  throw UsageError("the text has changed since " + path.native() + " was saved (then " + then + ", now " + now + "); " +
                   remedy + ", or use a new checkpoint.folder");
}

void check_same_order(const fsdp::Json& extra, const std::filesystem::path& path) {
  const fsdp::Json* saved = extra.find("order");
  const std::int64_t order = saved != nullptr ? saved->as_int() : kFirstOrder;
  if (order == ShardedSampler::kOrder) return;
  throw UsageError(path.native() + " was saved by a program with another order of samples (order " +
                   std::to_string(order) + ", this program has order " + std::to_string(ShardedSampler::kOrder) +
                   "); continue with that program, or use a new checkpoint.folder");
}

}  // namespace worker
