#include "worker/train/resume.h"

#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>

#include "agent/rank/reporter.h"
#include "base/numbers.h"
#include "base/usage_error.h"
#include "worker/train/agreement.h"
#include "worker/train/settings.h"

namespace worker {

Resume::Resume(Setup& setup)
    : skipped(setup.config.train.max_skipped_steps),
      best(best_checkpoint_of(setup.config.recipe, setup.config.checkpoint.best)),
      setup_(setup) {
  make_hooks();
  open_folder();
  check_not_fenced();
  checkpointer_->remove_stale();
  // Parameters that checkpoints do not hold come from elsewhere in each attempt.
  const bool always = setup_.parts->leave_out_parameters();
  if (always) give_first_values();
  if (const auto loaded = load_newest()) {
    restore(*loaded);
    restore_best(loaded->state.extra);
  } else if (!always) {
    give_first_values();
  }
  setup_.reporter.resumed_from(step);
}

void Resume::give_first_values() {
  std::string origin;
  together(setup_.ranks(), [&] { origin = setup_.recipe->first_values(*setup_.parts); });
  setup_.log.say("the weights come from %s", origin.c_str());
}

/// Makes the hooks. Rank 0 alone has those that write, and the decisions of rank 0 count.
void Resume::make_hooks() {
  const auto& train = setup_.config.train;
  const auto say = [&log = setup_.log](const std::string& line) { log.say(line); };
  together(setup_.ranks(), [&] {
    if (train.early_stop > 0) {
      const std::string series = best.series().empty() ? std::string(spec::kHeldOutLoss) : best.series();
      hooks.push_back(std::make_unique<EarlyStop>(series_of(setup_.config.recipe, series), train.early_stop,
                                                  train.early_stop_least));
    }
    if (setup_.environment.rank != 0) return;
    if (!train.log_folder.empty())
      hooks.push_back(std::make_unique<LogFiles>(train.log_folder, setup_.environment.attempt, say));
    hooks.push_back(std::make_unique<Progress>(
        Progress::Options{.steps = train.steps, .epochs_a_step = setup_.epochs_a_step(), .say = say}));
  });
}

void Resume::open_folder() {
  const auto& config = setup_.config.checkpoint;
  const std::filesystem::path folder = config.folder;
  together(setup_.ranks(), [&] {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error || ::access(folder.c_str(), W_OK) != 0) {
      throw base::UsageError("checkpoint.folder = \"" + folder.native() +
                             "\": " + (error ? error.message() : "no permission to write") +
                             "; want a folder that ranks can write");
    }
  });
  const agent::rank::RankEnvironment& environment = setup_.environment;
  fence_.emplace(folder, base::whole_number<std::int64_t>(environment.job_id).value_or(0), environment.attempt);
  fsdp::CheckpointOptions options;
  options.folder = folder;
  options.attempt = environment.attempt;
  options.keep = static_cast<int>(config.keep);
  options.may_write = [this] { return fence_->may_write(); };
  options.may_commit = [this] { return fence_->may_commit(); };
  options.commit_over = [this] { fence_->release(); };
  checkpointer_ = std::make_unique<fsdp::Checkpointer>(setup_.parts->checkpointed(), std::move(options));
  saves.emplace(*checkpointer_, best, setup_.reporter,
                Saves::Options{config.asynchronous, environment.world_size,
                               [&log = setup_.log](const std::string& line) { log.say(line); }});
}

/// Returns nullopt when there are no checkpoints.
std::optional<fsdp::LoadedCheckpoint> Resume::load_newest() {
  std::vector<std::string> ignored;
  std::optional<fsdp::LoadedCheckpoint> loaded;
  try {
    loaded = checkpointer_->load_latest(&ignored);
  } catch (const fsdp::CheckpointTooNew& error) {
    throw base::UsageError(error.what());
  } catch (const fsdp::CheckpointMismatch& error) {
    const std::string changes = changes_text(setup_.config, setup_.split, setup_.newest);
    throw base::UsageError(std::string(error.what()) + (changes.empty() ? "" : " (set otherwise: " + changes + ")") +
                           "; restore the run file, or use a new checkpoint.folder");
  }
  for (const auto& why : ignored) setup_.log.say("passed over a checkpoint: %s", why.c_str());
  if (!loaded && !ignored.empty()) {
    throw base::UsageError("no checkpoint in " + setup_.config.checkpoint.folder + " can be read (" + ignored.front() +
                           "); restore one, or move them away to begin at step 0");
  }
  return loaded;
}

/// A rank of an old attempt must not even remove stale files.
void Resume::check_not_fenced() {
  const std::string against = fence_->may_commit();
  fence_->release();
  if (const auto all = setup_.ranks().agree(against); !all.empty()) throw agent::rank::FencedError(all);
}

/// A whole checkpoint without the state that training needs was not saved by this program. The checkpoint before it
/// might lack the state too, and falling back to it would silently discard work.
void Resume::restore(const fsdp::LoadedCheckpoint& loaded) {
  try {
    restore_state(loaded.state, loaded.path);
  } catch (const fsdp::JsonError& error) {
    throw base::UsageError((loaded.path / "manifest.json").native() +
                           " does not say where to go on (extra: " + error.what() + "); move " + loaded.path.native() +
                           " away to go on from the checkpoint before it, or use a new checkpoint.folder");
  }
}

void Resume::restore_state(const fsdp::CheckpointState& state, const std::filesystem::path& path) {
  const auto& extra = state.extra;
  setup_.check_same_run(extra, path);
  const std::int64_t samples = extra.at("samples").as_int();
  if (samples < 0) throw fsdp::JsonError("samples is " + std::to_string(samples));
  setup_.loader->seek(samples);
  step = state.step;
  if (const auto* count = extra.find("skipped_steps")) {
    skipped = SkippedSteps(setup_.config.train.max_skipped_steps, count->as_int());
  }
  setup_.loss_scale->load(extra);
  for (const auto& hook : hooks) hook->load(extra);
  setup_.recipe->load(extra);
  saves->resumed(step);
  setup_.log.say("resumed from step %lld (%s)", static_cast<long long>(step), path.c_str());
  for (const auto& change : changed_settings(setup_.config, setup_.split, extra))
    setup_.log.say("set otherwise than before step %lld: %s", static_cast<long long>(step), change.c_str());
  if (const auto changes = changes_text(setup_.config, setup_.split, extra); !changes.empty())
    setup_.note("goes on from step " + std::to_string(step) + " with other settings: " + changes);
}

/// Restores the best checkpoint that the newest one names, if it still exists.
void Resume::restore_best(const fsdp::Json& extra) {
  const fsdp::Json* saved = extra.find("best");
  if (saved == nullptr || !best.restore(*saved)) return;
  std::string path;
  together(setup_.ranks(), [&] {
    if (setup_.ranks().rank() != 0) return;
    for (const auto& info : fsdp::list_checkpoints(setup_.config.checkpoint.folder).valid) {
      if (info.step == best.step()) path = info.path.native();
    }
  });
  path = setup_.ranks().broadcast(path);
  if (!path.empty()) return setup_.log.say(best.line(path));
  setup_.log.say("the best checkpoint by %s, of step %lld, is gone; the next value counts as the best",
                 best.series().c_str(), static_cast<long long>(best.step().value_or(0)));
  best.forget();
}

}  // namespace worker
