#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "schema/tables/checkpoints.h"
#include "schema/tables/exports.h"
#include "schema/tables/optimizer.h"
#include "schema/tables/prepared_data.h"
#include "schema/tables/sharding.h"
#include "schema/tables/text_data.h"
#include "schema/tables/training.h"

namespace worker {

/// The text to train on; see train/prepare_source.h.
struct DataConfig : schema::TextData {
  std::string man_folder = "/usr/share/man";  ///< a property of the machine, not of the run file; tests set their own
};

/// One run, as the JSON run file describes it (format 1). Every key but "format" and "name" is optional. schema/
/// declares keys, ranges and defaults.
struct RunConfig {
  std::string name;
  std::string recipe;
  std::string family;  ///< model.family
  DataConfig data;
  schema::PreparedData data_options;
  schema::Training train;  ///< batch_size and micro_batch_size are 0 if absent: split_batch() derives them
  schema::Optimizer optimizer;
  schema::Checkpoints checkpoint;
  schema::Exports exports;
  schema::Sharding fsdp;
  schema::Values values;  ///< values of all keys with defaults, but without a batch that split_batch() derives
  std::string canonical;  ///< the file's content in canonical spelling, so that equal runs have equal texts
};

/// Reads a run file's text. Whole numbers may also be decimal strings, as in protobuf's JSON. null means absent. Throws
/// UsageError naming key, value and remedy for an unknown key, a wrong type or an impossible value.
RunConfig parse_run_config(std::string_view json);

/// Reads a run file. The error also names the file.
RunConfig read_run_config(const std::filesystem::path& file);

/// Sets train.steps, and derives from it what the run file leaves out. For train.epochs, whose steps the number of
/// samples tells.
void set_steps(RunConfig& config, std::int64_t steps);

/// The split of a total batch: batch_size = micro_batch_size * ranks * accumulation.
struct BatchSplit {
  std::int64_t batch_size = 1;
  std::int64_t micro_batch_size = 1;
  std::int64_t accumulation = 1;
};

/// Derives absent values by the rules of schema's table "training". Throws UsageError naming the nearest fitting batch
/// sizes when the batch cannot be split evenly over `world_size` ranks.
BatchSplit split_batch(const schema::Training& config, int world_size);

}  // namespace worker
