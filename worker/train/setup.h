#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "agent/rank/environment.h"
#include "agent/rank/reporter.h"
#include "data/order/order.h"
#include "fsdp/comm/device_mesh.h"
#include "fsdp/text/json.h"
#include "worker/batch/loader.h"
#include "worker/train/export_trained.h"
#include "worker/train/optimizer_of_run.h"
#include "worker/train/recipe.h"
#include "worker/train/settings.h"
#include "worker/train/train_config.h"
#include "worker/train/train_parts.h"

namespace worker {

/// Connects all ranks of the attempt. Rank 0 serves the store: at MASTER_ADDR:MASTER_PORT, or at any free port when the
/// reporter passes the address on. The ranks compute on GPUs, or all on the CPU when no GPU is visible or the build is
/// without CUDA. Collective. A line of the log names ranks that have not come for ten seconds. Throws c10::Error or
/// std::runtime_error when the other ranks do not come in time, at once when one that has come is gone, and when only
/// some ranks have a GPU. Of `options` the axes and shared_memory count.
std::unique_ptr<fsdp::DeviceMesh> meet(const agent::rank::RankEnvironment& environment, agent::rank::Reporter& reporter,
                                       fsdp::MeshOptions options);

/// Components of a rank's training, before a checkpoint or first values give it its state: the ranks' mesh, the recipe
/// with its data, and the sharded parts.
class Setup {
 public:
  /// Meets the other ranks, opens the data, and makes the parts. Collective. Throws base::UsageError, c10::Error and
  /// std::runtime_error. The references must outlive the object. With train.epochs, sets train.steps of `config` and
  /// what follows from them, because the number of samples is known now.
  Setup(RunConfig& config, const agent::rank::RankEnvironment& environment, agent::rank::Reporter& reporter,
        const MakeRecipe& make_recipe);

  /// Writes what names this run into the member "extra" of a checkpoint.
  void describe(fsdp::Json& extra) const;
  /// Throws base::UsageError where the checkpoint at `path` was saved with other data or another order of samples.
  /// `extra` is the manifest's member of that name.
  void check_same_run(const fsdp::Json& extra, const std::filesystem::path& path) const;

  /// Lets people know something of this attempt: as a note of the job where there is a controller (`muster show`). Rank
  /// 0 tells it; other ranks tell nothing.
  void note(const std::string& text);

  fsdp::Communicator& ranks() { return mesh->control(); }
  /// Passes over the training data that a step makes.
  double epochs_a_step() const { return static_cast<double>(split.batch_size) / static_cast<double>(order.samples); }

  RunConfig& config;
  const agent::rank::RankEnvironment& environment;
  agent::rank::Reporter& reporter;
  const RankLog log;
  const BatchSplit split;
  std::unique_ptr<Recipe> recipe;
  std::unique_ptr<fsdp::DeviceMesh> mesh;
  RunData data;
  std::string source;  ///< Recipe::data_source()
  data::order::OrderOptions order;
  fsdp::Json newest;  ///< the member "extra" of the newest checkpoint at the start, with its path; null: none
  std::shared_ptr<const BatchSource> validation;  ///< null: none
  std::optional<Loader> loader;
  std::unique_ptr<Parts> parts;
  std::optional<LossScale> loss_scale;
  std::optional<ExportClaims> export_claims;  ///< on rank 0, where the run exports anything

 private:
  void open_data();
  void count_steps();
  fsdp::Json extra_of_newest_checkpoint();
  void check_same_on_all_ranks();
  void check_best() const;
  void deal();
  void say_what_is_trained();
  void announce_exports();

  agent::rank::ProgramWords words_;
};

}  // namespace worker
