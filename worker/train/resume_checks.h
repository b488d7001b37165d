#pragma once

#include <filesystem>
#include <string>

#include "data/order/order.h"
#include "fsdp/text/json.h"

namespace worker {

/// The data of a run, as checkpoints name them.
struct DataNames {
  std::string fingerprint;  ///< RunData::fingerprint
  std::string source;       ///< Recipe::data_source()
};

/// Throws base::UsageError when the run's data are not those that the checkpoint at `path` was trained on. `extra` is
/// the manifest's member of that name. Throws fsdp::JsonError when it does not name data.
void check_same_data(const DataNames& data, const fsdp::Json& extra, const std::filesystem::path& path);

/// Writes what names the order of samples into the member "extra" of a checkpoint.
void save_order(const data::order::OrderOptions& order, fsdp::Json& extra);

/// Throws base::UsageError when the checkpoint was saved with another order of samples: by a program with other rules,
/// or by a run with another seed, other buckets, or data that are cut into another number of samples. A saved position
/// means other samples under another order. `changes`: the settings that differ, for the message.
void check_same_order(const data::order::OrderOptions& order, const std::string& changes, const fsdp::Json& extra,
                      const std::filesystem::path& path);

}  // namespace worker
