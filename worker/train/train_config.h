#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "spec/tables/checkpoint_keys.h"
#include "spec/tables/optimizer_keys.h"
#include "spec/tables/sharding_keys.h"
#include "spec/tables/text_data_keys.h"
#include "spec/tables/training_keys.h"

namespace worker {

/// The text to train on; see worker/train/prepare_source.h.
struct DataConfig : spec::TextData {
  std::string man_folder = "/usr/share/man";  ///< a property of the machine, not of the run file; tests set their own
};

/// One run, as the JSON run file describes it (format 1). Every key but "format" and "name" is optional. spec/
/// declares keys, ranges and defaults.
struct RunConfig {
  std::string name;
  std::string recipe;
  std::string family;  ///< model.family
  DataConfig data;
  spec::PreparedData data_options;
  spec::Training train;  ///< batch_size and micro_batch_size are 0 if absent: split_batch() derives them
  spec::Optimizer optimizer;
  spec::Checkpoints checkpoint;
  spec::Exports exports;
  spec::Sharding fsdp;
  spec::Values values;    ///< values of all keys with defaults, but without a batch that split_batch() derives
  std::string canonical;  ///< the file's content in canonical spelling, so that equal runs have equal texts
};

/// Reads a run file's text. Whole numbers may also be decimal strings, as in protobuf's JSON. null means absent. Throws
/// base::UsageError naming key, value and remedy for an unknown key, a wrong type or an impossible value.
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

/// Derives absent values by the rules of schema's table "training". Throws base::UsageError naming the nearest fitting
/// batch sizes when the batch cannot be split evenly over `world_size` ranks.
BatchSplit split_batch(const spec::Training& config, int world_size);

}  // namespace worker
