#include "train/resume_checks.h"

#include <cstdint>

#include "rank/errors.h"

namespace worker {
namespace {

/// The rule of the order in checkpoints that do not record it.
constexpr std::int64_t kFirstOrder = 1;

}  // namespace

void check_same_data(const DataNames& data, const fsdp::Json& extra, const std::filesystem::path& path) {
  const std::string& then = extra.at("data").as_string();
  if (then == data.fingerprint) return;
  std::string remedy = "restore it or its data in the cache folder";
  if (then.find(" byte tokens, checksum ") != std::string::npos) remedy = "an earlier muster has cut it in another way";
  const fsdp::Json* asked = extra.find("source");
  if (asked != nullptr && asked->as_string() != data.source) {
    remedy = "the run file asks for " + data.source + ", then for " + asked->as_string() + ": restore the run file";
  }
  throw UsageError("the text has changed since " + path.native() + " was saved (then " + then + ", now " +
                   data.fingerprint + "); " + remedy + ", or use a new checkpoint.folder");
}

fsdp::Json order_json(const OrderOptions& order) {
  if (order.bucket_batches == 0) return fsdp::Json(Order::kShuffled);
  return fsdp::Json(fsdp::Json::Array{Order::kBucketed, order.batch_size, order.bucket_batches});
}

void check_same_order(const OrderOptions& order, const fsdp::Json& extra, const std::filesystem::path& path) {
  const fsdp::Json* found = extra.find("order");
  const fsdp::Json saved = found != nullptr ? *found : fsdp::Json(kFirstOrder), now = order_json(order);
  if (saved == now) return;
  if (saved.is_array() || (now.is_array() && saved == fsdp::Json(Order::kShuffled))) {
    throw UsageError(path.native() + " was saved with other length buckets (" + saved.dump() + ", now " + now.dump() +
                     ": rule, batch size, batches of a bucket), and so with another order of samples; restore "
                     "train.batch_size and data.bucket_batches, or use a new checkpoint.folder");
  }
  throw UsageError(path.native() + " was saved by a program with another order of samples (order " + saved.dump() +
                   ", this program has order " + now.dump() +
                   "); continue with that program, or use a new checkpoint.folder");
}

}  // namespace worker
