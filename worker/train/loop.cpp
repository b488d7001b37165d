#include "train/loop.h"
#include "os/process_memory.h"

#include <unistd.h>

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "data/sampler.h"
#include "fsdp/checkpoint.h"
#include "fsdp/deterministic.h"
#include "fsdp/device_mesh.h"
#include "fsdp/json.h"
#include "fsdp/tensor_bytes.h"
#include "rank/errors.h"
#include "rank/signals.h"
#include "schema/recipes.h"
#include "schema/whole_number.h"
#include "train/agreement.h"
#include "train/best_checkpoint.h"
#include "train/cuda_graph.h"
#include "train/export_trained.h"
#include "train/fence.h"
#include "train/gpu.h"
#include "train/loss_scale.h"
#include "train/optimizer.h"
#include "train/recipe.h"
#include "train/rendezvous.h"
#include "train/resume_checks.h"
#include "train/saves.h"
#include "train/skipped_steps.h"
#include "train/step.h"
#include "train/step_measures.h"
#include "train/strategy.h"

namespace worker {
namespace {

std::int64_t unix_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

}  // namespace

class Trainer::Run {
 public:
  Run(const RunConfig& config, const RankEnvironment& environment, Reporter& reporter, MakeRecipe make_recipe)
      : config_(config),
        environment_(environment),
        reporter_(reporter),
        make_recipe_(std::move(make_recipe)),
        skipped_(config.train.max_skipped_steps) {}

  Outcome run() {
    const fsdp::CountTensorBytes counting;
    prepare();
    const std::int64_t steps = config_.train.steps;
    if (step_ >= steps) {
      say("nothing left to do: the checkpoint holds all %lld steps", static_cast<long long>(steps));
      export_model();
      return leave(contract::kExitDone, "all " + std::to_string(steps) + " steps were done already");
    }
    const auto series = schema::series_of(config_.recipe);
    reporter_.declare({series.begin(), series.end()});
    reporter_.section(Section::kStep);
    stepper_->prepare();
    now_there_is_something_to_save();
    while (step_ < steps) {
      const StopKind stop = stepper_->make(step_++);
      saves_->look();
      const bool last = step_ == steps, asked = stop == StopKind::kSave;
      const std::int64_t every = config_.checkpoint.every_steps;
      const bool must_save = last || asked || (every > 0 && step_ % every == 0);
      const bool goes_on = !must_save && stop == StopKind::kNone && !validates_now();
      const bool is_best = tell_made_steps(stepper_->late() && goes_on ? 1 : 0);
      if (stop == StopKind::kNow)
        return leave(contract::kExitFenced, "told to leave at once after step " + text_of(step_));
      if (is_best || must_save) save(last || asked);
      if (asked && !last)
        return leave(contract::kExitRequeue, "saved step " + text_of(step_) + " as asked; start me again");
    }
    export_model();
    return leave(contract::kExitDone, "all " + text_of(steps) + " steps done");
  }

 private:
  static std::string text_of(std::int64_t number) { return std::to_string(number); }

  /// One line of this rank's log, written at once.
  template <class... Args>
  void say(const char* format, Args... args) const {
    char line[1024];
    std::snprintf(line, sizeof line, format, args...);
    std::printf("[rank %d] %s\n", environment_.rank, line);
    std::fflush(stdout);
  }
  void say(const char* text) const { say("%s", text); }

  fsdp::Communicator& ranks() { return mesh_->control(); }

  void choose_algorithms() const {
    if (!config_.train.deterministic) return;
    try {
      fsdp::compute_deterministically();
    } catch (const c10::Error& error) {
      throw UsageError(std::string("train.deterministic: ") + error.what_without_backtrace());
    }
  }

  /// Everything before the first step: rendezvous, data, model, checkpoint.
  void prepare() {
    choose_algorithms();
    split_ = split_batch(config_.train, environment_.world_size);
    recipe_ = make_recipe_(config_);
    mesh_ = meet(environment_, reporter_, mesh_options(config_.fsdp, environment_));
    reporter_.section(Section::kData);
    load_data();
    check_same_on_all_ranks();
    prepare_best();
    together(ranks(), [&] { check_export(config_); });
    reporter_.section(Section::kInit);
    sampler_.emplace(recipe_->train_samples(), static_cast<std::uint64_t>(config_.train.seed), environment_.rank,
                     environment_.world_size);
    shard_model();
    resume();
  }

  /// Loads the text of the run's newest checkpoint if a cache still has it, because sources such as a machine's manual
  /// pages change during a run. Where nodes have separate caches, each rank searches its own.
  void load_data() {
    const fsdp::Json newest = newest_checkpoint();
    const fsdp::Json* text = newest.find("data");
    const fsdp::Json* source = newest.find("source");
    const bool known = text != nullptr && text->is_string() && source != nullptr && source->is_string();
    const bool asks_alike = known && source->as_string() == recipe_->data_source();
    together(ranks(), [&] {
      recipe_->load_data(asks_alike ? text->as_string() : "");
      if (known) check_same_text(*recipe_, newest, newest.at("path").as_string());
    });
    if (const std::string note = recipe_->data_note(); !note.empty()) say(note.c_str());
  }

  /// The "extra" member of the newest checkpoint that looks whole, with the checkpoint's path; null when there is none.
  /// resume() reports what is wrong with other checkpoints or with the folder.
  fsdp::Json newest_checkpoint() {
    fsdp::Json out;
    try {
      const std::filesystem::path folder = config_.checkpoint.folder;
      if (const auto newest = ranks().rank() == 0 ? fsdp::latest_valid(folder) : std::nullopt) {
        out = newest->manifest.at("extra");
        out["path"] = newest->path.native();
      }
    } catch (const std::runtime_error&) {
      out = {};
    }
    return fsdp::Json::parse(ranks().broadcast(out.dump()));
  }

  void check_same_on_all_ranks() {
    const std::string mine = recipe_->data_fingerprint() + "\n" + config_.canonical;
    const std::string first = ranks().broadcast(mine);
    together(ranks(), [&] {
      if (mine != first) {
        throw UsageError("the text or the run file differs from rank 0's (here: " + recipe_->data_fingerprint() +
                         "); give all nodes the same files, such as a shared data.cache_folder");
      }
    });
  }

  /// Refuses checkpoint.best before the first step when nothing is ever validated.
  void prepare_best() {
    best_ = best_checkpoint_of(config_.recipe, config_.checkpoint.best);
    const bool never = config_.train.validation_every_steps == 0;
    if (best_.series().empty() || (!never && recipe_->validation_samples() > 0)) return;
    throw UsageError("checkpoint.best = \"" + best_.series() + "\": nothing is validated; want " +
                     (never ? "train.validation_every_steps" : "data.validation_fraction") +
                     " above 0, or no checkpoint.best");
  }

  void shard_model() {
    at::manual_seed(static_cast<std::uint64_t>(config_.train.seed));
    const auto module = recipe_->make_module();
    sharded_ = std::make_unique<fsdp::ShardedModel>(module, *mesh_);
    check_sharding(config_.fsdp, mesh_->shard().world_size(), mesh_->device());
    recipe_->shard(*sharded_, shard_options(config_));
    optimizer_ = make_optimizer(config_.optimizer, *recipe_, *sharded_);
    loss_scale_.emplace(config_.train, mesh_->device());
    stepper_.emplace(config_, split_, environment_, reporter_, *recipe_, *sampler_, *mesh_, *sharded_, *optimizer_,
                     *loss_scale_);
    if (auto graph = cuda_graph_of(config_, *mesh_, *recipe_)) stepper_->use_graph(std::move(graph));
    say("%lld parameters, %d ranks on %s, %lld training samples of %lld tokens from %s, batch %lld = %lld x %d ranks x "
        "%lld",
        static_cast<long long>(sharded_->parameter_count()), environment_.world_size,
        mesh_->device().is_cuda() ? "GPUs" : "the CPU", static_cast<long long>(recipe_->train_samples()),
        static_cast<long long>(recipe_->tokens_per_sample()), recipe_->data_name().c_str(),
        static_cast<long long>(split_.batch_size), static_cast<long long>(split_.micro_batch_size),
        environment_.world_size, static_cast<long long>(split_.accumulation));
    if (mesh_->shares_gpus()) {
      say("warning: ranks share a GPU, so they communicate through the host, which is slow; ask for a GPU a rank, or "
          "for fewer ranks");
    }
    if (mesh_->device().is_cpu() && config_.train.precision == schema::Precision::kFp16) {
      say("warning: fp16 on most CPUs is several times slower than fp32; set train.precision = \"bf16\", or \"fp32\"");
    }
  }

  /// Opens the checkpoint folder and continues from its newest checkpoint, or begins with the recipe's weights.
  void resume() {
    const std::filesystem::path folder = config_.checkpoint.folder;
    together(ranks(), [&] {
      std::error_code error;
      std::filesystem::create_directories(folder, error);
      if (error || ::access(folder.c_str(), W_OK) != 0) {
        throw UsageError("checkpoint.folder = \"" + folder.native() + "\": " +
                         (error ? error.message() : "no permission to write") + "; want a folder that ranks can write");
      }
    });
    fence_.emplace(folder, schema::whole_number<std::int64_t>(environment_.job_id).value_or(0), environment_.attempt);
    fsdp::CheckpointOptions options;
    options.folder = folder;
    options.attempt = environment_.attempt;
    options.keep = static_cast<int>(config_.checkpoint.keep);
    options.may_write = [this] { return fence_->may_write(); };
    options.may_commit = [this] { return fence_->may_commit(); };
    options.commit_over = [this] { fence_->release(); };
    checkpointer_ = std::make_unique<fsdp::Checkpointer>(*sharded_, *optimizer_, std::move(options));
    saves_.emplace(*checkpointer_, best_, reporter_,
                   Saves::Options{config_.checkpoint.asynchronous, environment_.world_size,
                                  [this](const std::string& line) { say("%s", line.c_str()); }});
    check_not_fenced();
    checkpointer_->remove_stale();

    if (const auto loaded = load_newest()) {
      restore(*loaded);
      restore_best(loaded->state.extra);
    } else {
      std::string origin;
      together(ranks(), [&] { origin = recipe_->initialize(*sharded_); });
      say("the weights come from %s", origin.c_str());
    }
    reporter_.resumed_from(step_);
  }

  /// Returns nullopt when there are no checkpoints. Throws when all checkpoints are damaged, because starting at step 0
  /// would silently discard the job's work.
  std::optional<fsdp::LoadedCheckpoint> load_newest() {
    std::vector<std::string> ignored;
    std::optional<fsdp::LoadedCheckpoint> loaded;
    try {
      loaded = checkpointer_->load_latest(&ignored);
    } catch (const fsdp::CheckpointMismatch& error) {
      throw UsageError(std::string(error.what()) + "; restore the run file, or use a new checkpoint.folder");
    }
    for (const auto& why : ignored) say("passed over a checkpoint: %s", why.c_str());
    if (!loaded && !ignored.empty()) {
      throw UsageError("no checkpoint in " + config_.checkpoint.folder + " can be read (" + ignored.front() +
                       "); restore one, or move them away to begin at step 0");
    }
    return loaded;
  }

  /// A rank of an old attempt must not even remove stale files.
  void check_not_fenced() {
    const std::string against = fence_->may_commit();
    fence_->release();
    if (const auto all = ranks().agree(against); !all.empty()) throw FencedError(all);
  }

  /// A whole checkpoint without the state that training needs was not saved by this program. The checkpoint before it
  /// might lack the state too, and falling back to it would silently discard work.
  void restore(const fsdp::LoadedCheckpoint& loaded) {
    try {
      restore_state(loaded.state, loaded.path);
    } catch (const fsdp::JsonError& error) {
      throw UsageError((loaded.path / "manifest.json").native() +
                       " does not say where to go on (extra: " + error.what() + "); move " + loaded.path.native() +
                       " away to go on from the checkpoint before it, or use a new checkpoint.folder");
    }
  }

  void restore_state(const fsdp::CheckpointState& state, const std::filesystem::path& path) {
    const auto& extra = state.extra;
    check_same_text(*recipe_, extra, path);
    check_same_order(extra, path);
    const std::int64_t samples = extra.at("samples").as_int();
    if (samples < 0) throw fsdp::JsonError("samples is " + text_of(samples));
    sampler_->seek(samples);
    step_ = state.step;
    if (const auto* skipped = extra.find("skipped_steps")) {
      skipped_ = SkippedSteps(config_.train.max_skipped_steps, skipped->as_int());
    }
    loss_scale_->load(extra);
    saves_->resumed(step_);
    say("resumed from step %lld (%s)", static_cast<long long>(step_), path.c_str());
  }

  /// Restores the best checkpoint that the newest one names, if it still exists.
  void restore_best(const fsdp::Json& extra) {
    const fsdp::Json* saved = extra.find("best");
    if (saved == nullptr || !best_.restore(*saved)) return;
    std::string path;
    together(ranks(), [&] {
      if (ranks().rank() != 0) return;
      for (const auto& info : fsdp::list_checkpoints(config_.checkpoint.folder).valid) {
        if (info.step == best_.step()) path = info.path.native();
      }
    });
    path = ranks().broadcast(path);
    if (!path.empty()) return say(best_.line(path).c_str());
    say("the best checkpoint by %s, of step %lld, is gone; the next value counts as the best", best_.series().c_str(),
        static_cast<long long>(best_.step().value_or(0)));
    best_.forget();
  }

  /// Reports the steps whose numbers are known, but not the newest `keep`. Returns whether one of them is the best so
  /// far and must be saved now.
  bool tell_made_steps(std::size_t keep) {
    bool is_best = false;
    while (auto made = stepper_->take(keep)) {
      tell(made->report, made->measures);
      is_best |= offer_best(made->report);
    }
    return is_best;
  }

  bool validates_now() const {
    const std::int64_t every = config_.train.validation_every_steps;
    return every > 0 && recipe_->validation_samples() > 0 && (step_ % every == 0 || step_ == config_.train.steps);
  }

  void tell(StepReport& report, StepMeasures& measures) {
    const bool scale_falls = measures.loss_scale.value_or(0) > LossScale::kFloor;
    if (skipped_.note(report.step, measures.loss, measures.grad_norm, scale_falls)) say(skipped_.line().c_str());
    measures.skipped_steps = skipped_.total();
    if (report.step == step_ && validates_now()) {
      reporter_.section(Section::kEvaluate);
      measures.validation_loss = validate();
      reporter_.section(Section::kStep);
    }
    measures.gpu_memory = gpu_memory(mesh_->device());
    report.values = measures.values();
    const os::ProcessMemory memory = os::process_memory();
    report.memory_bytes = memory.resident_bytes;
    report.memory_peak_bytes = memory.peak_bytes;
    report.at_ms = unix_ms();
    reporter_.step(report);
    say(line_of(report, measures, config_.train.steps).c_str());
    if (!std::exchange(said_tensors_, true)) say_tensors(measures);
    if (const auto bytes = stepper_->graph_bytes(); bytes && !std::exchange(said_graph_, true))
      say("the graph of a step keeps %.1f MiB for itself", static_cast<double>(*bytes) / (1 << 20));
  }

  /// After a step, because gradients and states are made in the first one.
  void say_tensors(const StepMeasures& measures) const {
    const fsdp::MemoryUse use = sharded_->memory();
    const KeptTensors kept{use.shard_bytes, use.gradient_memory_bytes, optimizer_->state_bytes(), use.pool_bytes};
    const auto& gpu = measures.gpu_memory;
    say(line_of(kept, gpu ? std::optional(gpu->peak_bytes) : measures.tensor_peak_bytes).c_str());
  }

  /// Whether the step is the best so far and must be saved now. Rank 0 decides, so that all ranks save or none does.
  bool offer_best(const StepReport& report) {
    const auto value = value_of(report.values, best_.series());
    if (value) saves_->finish();  // it may be the save of the best step so far
    if (!value || ranks().broadcast(best_.is_better(*value) ? "better" : "").empty()) return false;
    best_.offer(report.step, *value);
    return true;
  }

  /// The mean loss over the first validation samples, which are the same every time and at every world size. Every rank
  /// makes the same number of calls. A rank without samples left computes one sample that does not count.
  double validate() {
    const at::NoGradGuard no_grad;
    const std::int64_t first = recipe_->train_samples();
    const std::int64_t count =
        std::min(recipe_->validation_samples(), config_.train.validation_batches * split_.batch_size);
    const std::int64_t micro = split_.micro_batch_size;
    double sum = 0, weight = 0;
    for (std::int64_t base = 0; base < count; base += micro * environment_.world_size) {
      const std::int64_t begin = base + environment_.rank * micro, end = std::min(begin + micro, count);
      std::vector<std::int64_t> samples;
      for (std::int64_t i = begin; i < end; ++i) samples.push_back(first + i);
      const bool counts = !samples.empty();
      if (!counts) samples.push_back(first);
      const double loss = recipe_->loss(samples).item<double>();
      if (!counts) continue;
      sum += loss;
      weight += recipe_->weight(samples);
    }
    return ranks().all_reduce(sum) / ranks().all_reduce(weight);
  }

  /// Saves the current step unless it is saved already.
  void save(bool must) {
    if (!saves_->has(step_)) saves_->save(checkpoint_state(), must);
  }

  /// The last checkpoint is saved by now. So an attempt that ends here is followed by one that exports again.
  void export_model() {
    if (config_.exports.folder.empty()) return;
    check_not_fenced();
    reporter_.section(Section::kCheckpoint);
    say("%s", export_trained(config_, *recipe_, *sharded_).c_str());
  }

  fsdp::CheckpointState checkpoint_state() const {
    fsdp::CheckpointState state;
    state.step = step_;
    state.extra["data"] = recipe_->data_fingerprint();
    state.extra["source"] = recipe_->data_source();
    state.extra["order"] = ShardedSampler::kOrder;
    state.extra["samples"] = stepper_->samples();
    state.extra["name"] = config_.name;
    if (best_.step()) state.extra["best"] = best_.manifest();
    loss_scale_->save(state.extra);
    if (skipped_.total() > 0) state.extra["skipped_steps"] = skipped_.total();
    return state;
  }

  Outcome leave(contract::ExitCode code, std::string reason) {
    // No rank may close its connections while another rank still uses them.
    ranks().barrier();
    reporter_.section(Section::kDone);
    say("leaving with exit code %d: %s", static_cast<int>(code), reason.c_str());
    return {code, std::move(reason)};
  }

  const RunConfig& config_;
  const RankEnvironment& environment_;
  Reporter& reporter_;
  const MakeRecipe make_recipe_;
  SkippedSteps skipped_;
  BatchSplit split_;
  std::unique_ptr<fsdp::DeviceMesh> mesh_;
  std::unique_ptr<Recipe> recipe_;
  std::optional<ShardedSampler> sampler_;
  std::unique_ptr<fsdp::ShardedModel> sharded_;
  std::unique_ptr<fsdp::Optimizer> optimizer_;
  std::optional<LossScale> loss_scale_;
  std::optional<Stepper> stepper_;
  std::optional<Fence> fence_;
  BestCheckpoint best_;
  std::unique_ptr<fsdp::Checkpointer> checkpointer_;
  std::optional<Saves> saves_;
  std::int64_t step_ = 0;
  bool said_tensors_ = false, said_graph_ = false;
};

Trainer::Trainer(const RunConfig& config, const RankEnvironment& environment, Reporter& reporter,
                 MakeRecipe make_recipe)
    : run_(std::make_unique<Run>(config, environment, reporter, std::move(make_recipe))) {}

Trainer::~Trainer() = default;

Outcome Trainer::run() {
  return run_->run();
}

}  // namespace worker
