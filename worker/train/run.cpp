#include "worker/train/run.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <new>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "agent/rank/signals.h"
#include "base/process_table.h"
#include "base/usage_error.h"
#include "fsdp/files/checkpoint.h"
#include "fsdp/memory/storage.h"
#include "spec/recipes.h"
#include "worker/train/evaluation.h"
#include "worker/train/export_trained.h"
#include "worker/train/gpu.h"
#include "worker/train/optimizer_of_run.h"
#include "worker/train/resume.h"
#include "worker/train/setup.h"
#include "worker/train/step.h"
#include "worker/train/step_measures.h"

namespace worker {
namespace {

std::int64_t unix_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

constexpr const char* kRemedy = "; use a smaller train.micro_batch_size, or more ranks";

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

/// LibTorch has an exception of its own for its allocator on GPUs alone. All others say it in words: the CPU's
/// allocator, CUDA (contexts, kernels, pinned memory), cuBLAS and cuDNN, NCCL.
bool lacks_memory(const c10::Error& error, std::string_view what) {
  constexpr std::array<std::string_view, 3> kWords = {"out of memory", "can't allocate memory", "ALLOC_FAILED"};
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         std::ranges::any_of(kWords, [&](auto words) { return what.find(words) != std::string_view::npos; });
}

Outcome outcome_of(const c10::Error& error) {
  std::string what = error.what_without_backtrace();
  for (const char* advice : {"\nSearch for `cuda", "\nCUDA kernel errors might be"})
    what.resize(std::min(what.size(), what.find(advice)));
  what = one_line(std::move(what));
  if (!lacks_memory(error, what)) return {spec::kExitFailed, what};
  return {spec::kExitOutOfMemory, what + kRemedy};
}

}  // namespace

Outcome outcome_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const base::UsageError& error) {
    return {spec::kExitNeverRequeue, one_line(error.what())};
  } catch (const std::invalid_argument& error) {
    return {spec::kExitNeverRequeue, one_line(error.what())};
  } catch (const agent::rank::FencedError& error) {
    return {spec::kExitFenced, one_line(error.what())};
  } catch (const fsdp::CheckpointFenced& error) {
    return {spec::kExitFenced, one_line(error.what())};
  } catch (const std::bad_alloc&) {
    return {spec::kExitOutOfMemory, std::string("out of memory") + kRemedy};
  } catch (const c10::Error& error) {
    return outcome_of(error);
  } catch (const std::exception& error) {
    return {spec::kExitFailed, one_line(error.what())};
  } catch (...) {
    return {spec::kExitFailed, "an unknown exception"};
  }
}

/// The steps of a training, with what comes between them: evaluations, reports and saves.
class Loop {
 public:
  /// Both must outlive the object.
  Loop(Setup& setup, Resume& resume)
      : run_(setup),
        state_(resume),
        stepper_(setup.config, setup.split, setup.environment, setup.reporter, *setup.recipe, *setup.loader,
                 *setup.parts, *setup.loss_scale) {
    if (auto graph = cuda_graph_of(run_.config, *run_.mesh, run_.recipe->why_no_fixed_shapes()))
      stepper_.use_graph(std::move(graph));
  }

  /// Makes the steps that are left, and exports the model at the end. Collective.
  Outcome run() {
    const std::int64_t steps = run_.config.train.steps;
    std::int64_t& step = state_.step;
    if (step >= steps) {
      run_.log.say("nothing left to do: the checkpoint holds all %lld steps", static_cast<long long>(steps));
      export_model();
      return leave(spec::kExitDone, "all " + std::to_string(steps) + " steps were done already");
    }
    const auto series = spec::series_of(run_.config.recipe);
    run_.reporter.declare({series.begin(), series.end()});
    run_.reporter.section(agent::rank::Section::kStep);
    for (const auto& hook : state_.hooks) hook->began(step);
    if (stop_early_ = wants_stop(); !stop_early_.empty()) return end();
    stepper_.prepare();
    agent::rank::now_there_is_something_to_save();
    while (step < steps) {
      const agent::rank::StopKind stop = stepper_.make(step++);
      state_.saves->look();
      bool last = step == steps;
      const bool asked = stop == agent::rank::StopKind::kSave;
      const std::int64_t every = run_.config.checkpoint.every_steps;
      bool must_save = last || asked || (every > 0 && step % every == 0);
      const bool goes_on = !must_save && stop == agent::rank::StopKind::kNone && !validates_now();
      const bool is_best = tell_made_steps(stepper_.late() && goes_on ? 1 : 0);
      if (stop == agent::rank::StopKind::kNow)
        return leave(spec::kExitFenced, "told to leave at once after step " + std::to_string(step));
      last |= !stop_early_.empty();
      must_save |= last;
      if (is_best || must_save) save(last || asked);
      if (asked && !last)
        return leave(spec::kExitRequeue, "saved step " + std::to_string(step) + " as asked; start me again");
      if (last) break;
    }
    return end();
  }

 private:
  /// All steps are done and saved, or enough of them.
  Outcome end() {
    export_model();
    return leave(spec::kExitDone,
                 stop_early_.empty() ? "all " + std::to_string(state_.step) + " steps done" : stop_early_);
  }

  std::string wants_stop() {
    std::string why;
    for (const auto& hook : state_.hooks) {
      if (why.empty()) why = hook->wants_stop();
    }
    return run_.ranks().broadcast(why);
  }

  /// Reports the steps whose numbers are known, but not the newest `keep`. Returns whether one of them is the best so
  /// far and must be saved now.
  bool tell_made_steps(std::size_t keep) {
    bool is_best = false;
    while (auto made = stepper_.take(keep)) {
      tell(made->report, made->measures);
      is_best |= offer_best(made->report);
    }
    return is_best;
  }

  bool validates_now() const {
    return run_.validation != nullptr && evaluates(run_.config.train, run_.epochs_a_step(), state_.step);
  }

  void tell(agent::rank::StepReport& report, StepMeasures& measures) {
    const bool scale_falls = measures.loss_scale.value_or(0) > LossScale::kFloor;
    if (state_.skipped.note(report.step, measures.loss, measures.grad_norm, scale_falls))
      run_.log.say(state_.skipped.line());
    measures.skipped_steps = state_.skipped.total();
    const bool is_evaluated = report.step == state_.step && validates_now();
    if (is_evaluated) {
      run_.reporter.section(agent::rank::Section::kEvaluate);
      measures.evaluated = evaluate();
      run_.reporter.section(agent::rank::Section::kStep);
    }
    measures.gpu_memory = gpu_memory(run_.mesh->device());
    report.values = measures.values();
    const base::ProcessMemory memory = base::process_memory();
    report.memory_bytes = memory.resident_bytes;
    report.memory_peak_bytes = memory.peak_bytes;
    report.at_ms = unix_ms();
    run_.reporter.step(report);
    run_.log.say(line_of(report, measures, run_.config.train.steps));
    for (const auto& hook : state_.hooks) hook->step(report, is_evaluated);
    if (is_evaluated) stop_early_ = wants_stop();
    if (!std::exchange(said_tensors_, true)) say_tensors(measures);
    if (const auto bytes = stepper_.graph_bytes(); bytes && !std::exchange(said_graph_, true))
      run_.log.say("the graph of a step keeps %.1f MiB for itself", static_cast<double>(*bytes) / (1 << 20));
  }

  /// After a step, because gradients and states are made in the first one.
  void say_tensors(const StepMeasures& measures) const {
    const Parts& parts = *run_.parts;
    const KeptTensors kept{parts.parameter_bytes(), parts.gradient_bytes(), parts.optimizer().state_bytes(),
                           parts.pool_bytes()};
    const auto& gpu = measures.gpu_memory;
    run_.log.say(line_of(kept, gpu ? std::optional(gpu->peak_bytes) : measures.tensor_peak_bytes));
  }

  /// True if the step is the best so far and must be saved now. Rank 0 decides, so that all ranks save or none does.
  bool offer_best(const agent::rank::StepReport& report) {
    const auto value = value_of(report.values, state_.best.series());
    if (value) state_.saves->finish();  // it may be the save of the best step so far
    if (!value || run_.ranks().broadcast(state_.best.is_better(*value) ? "better" : "").empty()) return false;
    state_.best.offer(report.step, *value);
    return true;
  }

  std::vector<agent::rank::SeriesValue> evaluate() {
    Evaluation evaluation(run_.config, run_.split, *run_.parts, run_.validation.get());
    run_.recipe->evaluate(evaluation);
    return evaluation.finish();
  }

  /// Saves the current step unless it is saved already.
  void save(bool must) {
    if (!state_.saves->has(state_.step)) state_.saves->save(checkpoint_state(), must);
  }

  /// The last checkpoint is saved by now. So an attempt that ends here is followed by one that exports again.
  void export_model() {
    if (!exports_anything(run_.config)) return;
    state_.check_not_fenced();
    run_.reporter.section(agent::rank::Section::kCheckpoint);
    std::string owner;
    if (run_.export_claims) {
      owner = run_.export_claims->owner();
      for (const std::string& text : run_.export_claims->news()) {
        run_.log.say("warning: " + text);
        run_.note(text);
      }
    }
    for (const std::string& line : export_trained(run_.config, *run_.recipe, *run_.parts, owner)) run_.log.say(line);
    if (run_.export_claims) run_.export_claims->withdraw();
  }

  fsdp::CheckpointState checkpoint_state() const {
    fsdp::CheckpointState state;
    state.step = state_.step;
    run_.describe(state.extra);
    state.extra["samples"] = stepper_.samples();
    if (state_.best.step()) state.extra["best"] = state_.best.manifest();
    run_.loss_scale->save(state.extra);
    if (state_.skipped.total() > 0) state.extra["skipped_steps"] = state_.skipped.total();
    for (const auto& hook : state_.hooks) hook->save(state.extra);
    run_.recipe->save(state.extra);
    return state;
  }

  Outcome leave(spec::ExitCode code, std::string reason) {
    // No rank may close its connections while another rank still uses them.
    run_.ranks().barrier();
    state_.saves->finish_removal();
    run_.reporter.section(agent::rank::Section::kDone);
    run_.log.say("leaving with exit code %d: %s", static_cast<int>(code), reason.c_str());
    return {code, std::move(reason)};
  }

  Setup& run_;
  Resume& state_;
  Stepper stepper_;
  std::string stop_early_;  // why no further step is made; the same on all ranks
  bool said_tensors_ = false, said_graph_ = false;
};

/// Members live until the Trainer ends, also after an exception.
struct Trainer::State {
  RunConfig config;
  const agent::rank::RankEnvironment& environment;
  agent::rank::Reporter& reporter;
  const MakeRecipe make_recipe;
  std::optional<Setup> setup;
  std::optional<Resume> resume;
  std::optional<Loop> loop;
};

Trainer::Trainer(const RunConfig& config, const agent::rank::RankEnvironment& environment,
                 agent::rank::Reporter& reporter, MakeRecipe make_recipe)
    : state_(new State{config, environment, reporter, std::move(make_recipe), {}, {}, {}}) {}

Trainer::~Trainer() = default;

Outcome Trainer::run() {
  const fsdp::CountTensorBytes counting;
  State& state = *state_;
  state.setup.emplace(state.config, state.environment, state.reporter, state.make_recipe);
  state.resume.emplace(*state.setup);
  state.loop.emplace(*state.setup, *state.resume);
  return state.loop->run();
}

}  // namespace worker
