#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "fsdp/comm/device_mesh.h"
#include "fsdp/engine/fully_shard.h"
#include "worker/generate/decode.h"
#include "worker/infer/options.h"
#include "worker/infer/source.h"

namespace infer {

/// The dtype and the device of the options. Throws base::UsageError for a GPU that this program cannot use.
worker::Activations activations_of(const Options& options);

/// A module of one process with the weights of a source. The weights exist once, in the dtype of the options, and
/// nothing records gradients.
class LoadedModel {
 public:
  /// Adapters of the source are added to the module, and its other weights are those of the model that they belong to.
  /// A checkpoint that keeps the average of its weights (Optimizer::keep_average) gives that, as evaluations and
  /// exports of the training do.
  ///
  /// `make` builds the module; its parameters then lie on the meta device. The module must be worker::Wrapped, because
  /// its calls go through its wrapper from now on.
  ///
  /// Files may hold heads that the module does not have: what FileNames::may_lack allows to be missing. `in_fp32` says
  /// which parameters are kept in fp32 whatever the options say; null: none. `some_parameters`: a checkpoint may have
  /// more parameters than the module.
  ///
  /// Throws base::UsageError that names each tensor that is missing, has another shape or dtype, or belongs to no
  /// parameter, and for a checkpoint that cannot be read.
  LoadedModel(const Source& source, const Options& options,
              const std::function<std::shared_ptr<torch::nn::Module>()>& make,
              const std::function<bool(const std::string& parameter)>& in_fp32 = {}, bool some_parameters = false);

  torch::nn::Module& module() { return *module_; }
  const worker::Activations& activations() const { return activations_; }

 private:
  void load_model_files(const Source& source, const std::filesystem::path& folder);
  void load_base(const Source& source);
  void load_adapter_file(const Source& source);
  void load_checkpoint(const Source& source, const Options& options, bool some_parameters);

  worker::Activations activations_;
  fsdp::DeviceMesh mesh_;
  std::shared_ptr<torch::nn::Module> module_;
  std::unique_ptr<fsdp::ShardedModel> sharded_;
};

}  // namespace infer
