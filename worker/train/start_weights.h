#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "fsdp/engine/fully_shard.h"
#include "fsdp/files/export.h"
#include "fsdp/text/json.h"
#include "spec/table.h"
#include "worker/models/family.h"
#include "worker/train/train_config.h"
#include "worker/train/train_parts.h"

namespace worker {

/// The model that [model] of a run file describes.
struct ChosenModel {
  const Family* family = nullptr;
  spec::Values values;               ///< all rows of the run, with those of the family that config.json gives
  std::filesystem::path pretrained;  ///< model.pretrained; empty: drawn weights
  ModelFiles files;                  ///< what it came with; null members for drawn weights
};

/// Reads the config.json of model.pretrained, which gives the rows that the run file leaves out, and the
/// generation_config.json beside it. A run that goes on finds these in its newest checkpoint, and needs the folder no
/// more. Without a model.vocab_size the vocabulary is
/// the data's, `vocabulary` ids; 0: not known.
///
/// Throws base::UsageError naming key, value and remedy: the file cannot be read, describes what the family does not
/// have here, or contradicts a row that is written; or the rows contradict each other; or the vocabulary is smaller
/// than the data's. A longest sequence, an initializer's range and a dropout may differ from the file, as no weight
/// depends on them.
ChosenModel choose_model(const RunConfig& config, std::int64_t vocabulary);

/// True if choose_model() can read a config.json for model.pretrained: there, or in the newest checkpoint.
bool finds_model_config(const RunConfig& config);

/// The trained part of a recipe. `model` must outlive it.
Part part_of(const ChosenModel& model, std::shared_ptr<torch::nn::Module> module);

/// Properties that a recipe adds to a family's model.
struct StartOptions {
  /// Where the family's model is in the sharded one: "backbone.". Empty: it is the whole.
  std::string prefix;
  /// True if a parameter is the recipe's own, such as a head or an adapter. No file has to have it. Null: none is.
  std::function<bool(const std::string& parameter)> is_own;
  /// True if a parameter is drawn although the files have it. Null: none is.
  std::function<bool(const std::string& parameter)> is_redrawn;
  /// Draws first values for elements of a parameter of the recipe's own.
  std::function<void(const std::string& parameter, const at::Tensor& values, at::Generator& random)> draw_own;
};

/// Gives a sharded model first values, and says for people where they come from: the weights of model.pretrained, of
/// which each rank reads its own slices, or else what the family draws with `seed`. Where the files lack parameters
/// that the family may draw, such as a head, these are drawn, and the text says so. Not collective. Throws
/// base::UsageError where a tensor does not fit, and c10::Error where a file cannot be read.
std::string start_weights(const ChosenModel& model, std::int64_t seed, fsdp::ShardedModel& sharded,
                          const StartOptions& options = {});

/// Notes the model in a checkpoint's extra.model: {family, config, generation_config}, where config is that of
/// config_text() in fp32. Without a generation_config.json the last one is left out.
void note_model(const ChosenModel& model, std::string_view architecture, fsdp::Json& extra);

/// The text of config.json for weights of `dtype`, as transformers reads it. Members of the file that the training
/// started from stay.
std::string config_text(const ChosenModel& model, std::string_view architecture, at::ScalarType dtype);

/// Adds to the export of a model that writes text the files that describe the model: config.json, and the
/// generation_config.json that the training started from. `options` has a dtype.
void describe_model(const ChosenModel& model, std::string_view architecture, fsdp::ExportOptions& options);

}  // namespace worker
