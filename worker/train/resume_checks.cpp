#include "worker/train/resume_checks.h"

#include <cstdint>

#include "base/usage_error.h"

namespace worker {
namespace {

/// The rule of the order in checkpoints that do not record it.
constexpr std::int64_t kFirstOrder = 1;

constexpr const char *kOrder = "order", *kEpoch = "epoch";

fsdp::Json rule_json(const data::order::OrderOptions& order) {
  if (order.bucket_batches == 0) return fsdp::Json(data::order::Order::kShuffled);
  return fsdp::Json(fsdp::Json::Array{data::order::Order::kBucketed, order.batch_size, order.bucket_batches});
}

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
  throw base::UsageError("the text has changed since " + path.native() + " was saved (then " + then + ", now " +
                         data.fingerprint + "); " + remedy + ", or use a new checkpoint.folder");
}

void save_order(const data::order::OrderOptions& order, fsdp::Json& extra) {
  extra[kOrder] = rule_json(order);
  extra[kEpoch]["samples"] = order.samples;
  extra[kEpoch]["seed"] = static_cast<std::int64_t>(order.seed);
}

void check_same_order(const data::order::OrderOptions& order, const std::string& changes, const fsdp::Json& extra,
                      const std::filesystem::path& path) {
  const fsdp::Json* found = extra.find(kOrder);
  const fsdp::Json saved = found != nullptr ? *found : fsdp::Json(kFirstOrder), now = rule_json(order);
  if (saved != now && (saved.is_array() || (now.is_array() && saved == fsdp::Json(data::order::Order::kShuffled)))) {
    throw base::UsageError(path.native() + " was saved with other length buckets (" + saved.dump() + ", now " +
                           now.dump() +
                           ": rule, batch size, batches of a bucket), and so with another order of samples; restore "
                           "train.batch_size and data.bucket_batches, or use a new checkpoint.folder");
  }
  if (saved != now) {
    throw base::UsageError(path.native() + " was saved by a program with another order of samples (order " +
                           saved.dump() + ", this program has order " + now.dump() +
                           "); continue with that program, or use a new checkpoint.folder");
  }
  const fsdp::Json* epoch = extra.find(kEpoch);
  if (epoch == nullptr) return;
  const auto refuse = [&](const char* what, std::int64_t then, std::int64_t here) {
    if (then == here) return;
    throw base::UsageError(
        path.native() + " was saved with " + what + " " + std::to_string(then) + ", now " + std::to_string(here) +
        (changes.empty() ? "" : " (" + changes + ")") +
        ", and so with another order of samples; restore the run file, or use a new checkpoint.folder");
  };
  refuse("train.seed", epoch->at("seed").as_int(), static_cast<std::int64_t>(order.seed));
  refuse("training samples in an epoch:", epoch->at("samples").as_int(), order.samples);
}

}  // namespace worker
