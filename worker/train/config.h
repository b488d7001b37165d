#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "models/llama.h"

namespace worker {

enum class ScheduleKind { kCosine, kLinear, kConstant };
enum class Precision { kFp32, kBf16 };

/// Which text to learn from; see data/text_source.h.
struct DataConfig {
  std::string source = "auto";
  std::string path;                           ///< for source "folder"
  std::int64_t sequence_length = 256;         ///< tokens a sample
  double validation_fraction = 0.05;          ///< of all samples, in [0, 1); 0 for no validation
  std::int64_t max_bytes = 16 << 20;          ///< of text
  std::string cache_folder;                   ///< empty: default_cache_folder()
  std::string man_folder = "/usr/share/man";  ///< of the machine, not of the run file; tests bring their own
};

/// The optimizer's steps.
struct StepConfig {
  std::int64_t steps = 200;
  std::int64_t batch_size = 8;        ///< samples a step, over all ranks and micro-batches
  std::int64_t micro_batch_size = 0;  ///< samples a rank computes at once; 0: batch_size / ranks
  double learning_rate = 1e-3;
  double min_learning_rate = 1e-4;
  std::int64_t warmup_steps = 0;
  ScheduleKind schedule = ScheduleKind::kCosine;
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double clip_norm = 1.0;  ///< 0: no clipping
  std::int64_t seed = 0;
  Precision precision = Precision::kFp32;
  std::int64_t validation_every_steps = 0;  ///< 0: never
  std::int64_t validation_batches = 4;      ///< total batches a validation looks at, at most
  std::int64_t step_delay_ms = 0;           ///< makes each step this much longer, for demonstrations and tests
};

struct CheckpointConfig {
  std::string folder = "checkpoints";
  std::int64_t every_steps = 0;  ///< 0: only at the end and when asked to stop
  std::int64_t keep = 3;         ///< newest checkpoints that stay
};

struct FsdpConfig {
  bool reshard_after_forward = true;
  bool prefetch = true;
};

/// One run, as the JSON run file says it (format 1; every key is optional but "format" and "name").
struct RunConfig {
  std::string name;
  std::string recipe = "causal_lm";
  LlamaConfig model;
  DataConfig data;
  StepConfig train;
  CheckpointConfig checkpoint;
  FsdpConfig fsdp;
  std::string canonical;  ///< the file's content in one spelling: equal runs have equal texts
};

/// Reads a run file's text. Whole numbers may also come as decimal strings (protobuf's JSON); null means absent. Throws
/// UsageError that names key, value and remedy for an unknown key, a wrong type or an impossible value.
RunConfig parse_run_config(std::string_view json);

/// The same from a file; the error names the file too.
RunConfig read_run_config(const std::filesystem::path& file);

/// How a total batch is split: batch_size = micro_batch_size * ranks * accumulation.
struct BatchSplit {
  std::int64_t micro_batch_size = 1;
  std::int64_t accumulation = 1;
};

/// Throws UsageError with the nearest batch sizes that fit when the batch can't be split evenly over `world_size`.
BatchSplit split_batch(const StepConfig& config, int world_size);

}  // namespace worker
