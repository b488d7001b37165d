#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "fsdp/files/export.h"
#include "fsdp/text/json.h"
#include "spec/tables/text_recipe_keys.h"
#include "worker/adapters/low_rank.h"
#include "worker/train/start_weights.h"
#include "worker/train/train_parts.h"

namespace worker {

/// The adapters of one part, whose own weights are frozen.
class Adapters {
 public:
  /// Adds adapters to the chosen linear layers of the part's module, freezes all other parameters, and lets checkpoints
  /// hold the adapters alone. Before the part is sharded. Throws base::UsageError naming train.lora_layers where a name
  /// fits no layer. `family` must outlive the object.
  Adapters(spec::Lora lora, const Family& family, Part& part);

  /// Draws first values for elements of an adapter's parameter: A uniform in [-1, 1] / sqrt(in), B zero, as PEFT does.
  void draw(const std::string& name, const at::Tensor& values, at::Generator& random) const;

  /// Describes them in a checkpoint's extra, so that they can be used without the run file.
  void note(fsdp::Json& extra) const;

  /// Completes an export: the whole model with W + (alpha / rank) B A, computed in fp32, in place of W; or, with
  /// train.export_merged = false, the adapters alone as adapter_model.safetensors, and adapter_config.json, which names
  /// `pretrained` as the model they belong to.
  void complete(const std::string& pretrained, fsdp::ExportOptions& options) const;

 private:
  void complete_merged(fsdp::ExportOptions& options) const;

  const spec::Lora lora_;
  const LowRank shape_;
  std::map<std::string, std::int64_t> inputs_;  // by the name of the layer
};

}  // namespace worker
