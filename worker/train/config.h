#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "schema/tables/adamw.h"
#include "schema/tables/checkpoints.h"
#include "schema/tables/llama.h"
#include "schema/tables/sharding.h"
#include "schema/tables/text_data.h"
#include "schema/tables/training.h"

namespace worker {

/// Which text to learn from; see data/text_source.h.
struct DataConfig : schema::TextData {
  std::string man_folder = "/usr/share/man";  ///< of the machine, not of the run file; tests bring their own
};

/// One run, as the JSON run file says it (format 1; every key is optional but "format" and "name"). Keys, ranges and
/// defaults are those of schema/.
struct RunConfig {
  std::string name;
  std::string recipe;
  schema::Llama model;
  DataConfig data;
  schema::Training train;  ///< batch_size and micro_batch_size are 0 if absent: split_batch() derives them
  schema::AdamW optimizer;
  schema::Checkpoints checkpoint;
  schema::Sharding fsdp;
  schema::Values values;  ///< of all keys, defaults included; without a batch that split_batch() derives
  std::string canonical;  ///< the file's content in one spelling: equal runs have equal texts
};

/// Reads a run file's text. Whole numbers may also come as decimal strings (protobuf's JSON); null means absent. Throws
/// UsageError that names key, value and remedy for an unknown key, a wrong type or an impossible value.
RunConfig parse_run_config(std::string_view json);

/// The same from a file; the error names the file too.
RunConfig read_run_config(const std::filesystem::path& file);

/// How a total batch is split: batch_size = micro_batch_size * ranks * accumulation.
struct BatchSplit {
  std::int64_t batch_size = 1;
  std::int64_t micro_batch_size = 1;
  std::int64_t accumulation = 1;
};

/// Derives what is absent as the table of training says. Throws UsageError with the nearest batch sizes that fit when
/// the batch can't be split evenly over `world_size`.
BatchSplit split_batch(const schema::Training& config, int world_size);

}  // namespace worker
