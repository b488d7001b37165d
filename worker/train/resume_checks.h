#pragma once

#include <filesystem>
#include <string>

#include "data/order.h"
#include "fsdp/json.h"

namespace worker {

/// The data of a run, as checkpoints name them.
struct DataNames {
  std::string fingerprint;  ///< RunData::fingerprint
  std::string source;       ///< Recipe::data_source()
};

/// Throws UsageError when the run's data are not those that the checkpoint at `path` was trained on. `extra` is the
/// manifest's member of that name. Throws fsdp::JsonError when it does not name data.
void check_same_data(const DataNames& data, const fsdp::Json& extra, const std::filesystem::path& path);

/// What names the order of samples in a checkpoint.
fsdp::Json order_json(const OrderOptions& order);

/// Throws UsageError when the checkpoint was saved with another order of samples: by a program with other rules, or by
/// a run with other buckets. A saved position means other samples under another order.
void check_same_order(const OrderOptions& order, const fsdp::Json& extra, const std::filesystem::path& path);

}  // namespace worker
