#include "spec/tables/training_keys.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "spec/limits.h"
#include "spec/tables/shared_rules.h"

namespace spec {
namespace {

constexpr std::int64_t kMicroBatch = 8;
constexpr std::int64_t kSteps = 1000, kValidationSteps = 100;
constexpr std::int64_t kWarmupSteps = 100;
constexpr std::int64_t kDrops = 3;
constexpr double kGamma = 0.1;
constexpr std::uint64_t kMostChecked = std::uint64_t{1} << 20;  // ranks; other checks refuse a larger world

constexpr auto kKeys = std::to_array<Key>({
    row::whole("train.steps", derived("1000, or what epochs needs"), {1, kMostCount}, "Optimizer steps.",
               into<&Training::steps>),
    row::real("train.epochs", "0", {0, 1'000'000}, "Passes over the training data, instead of steps; 0: steps counts.",
              into<&Training::epochs>),
    row::whole("train.batch_size", derived("micro_batch_size x ranks"), {1, kMostSize},
               "Samples in a step over all ranks; a multiple of micro_batch_size x ranks. A larger multiple "
               "accumulates gradients.",
               into<&Training::batch_size>, "samples"),
    row::whole("train.micro_batch_size", derived("8, or the largest up to 8 that fits batch_size"), {1, kMostSize},
               "Samples that a rank computes at once.", into<&Training::micro_batch_size>, "samples"),
    row::real("train.learning_rate", "3e-4", above(0, 1000), "Learning rate at the end of the warm-up.",
              into<&Training::learning_rate>),
    row::real("train.min_learning_rate", derived("learning_rate / 10, or 0 with schedule = \"step\""), {0, 1000},
              "Learning rate at the last step; at most learning_rate.", into<&Training::min_learning_rate>),
    row::whole("train.warmup_steps", derived("100, or steps / 10 if that is less"), {0, kMostCount},
               "Steps until the full learning rate; at most steps.", into<&Training::warmup_steps>),
    row::choice("train.schedule", "cosine", "cosine linear constant step",
                "How the learning rate falls after the warm-up.", into<&Training::schedule>),
    row::whole("train.step_size", derived("a third of the steps after the warm-up, with schedule = \"step\""),
               {1, kMostCount}, "Steps between two drops of the learning rate; with schedule = \"step\" only.",
               into<&Training::step_size>, "steps"),
    row::real("train.gamma", derived("0.1 with schedule = \"step\""), {0, 1},
              "Factor of the learning rate at a drop; with schedule = \"step\" only.", into<&Training::gamma>),
    row::real("train.clip_norm", "1", {0, 1e12},
              "Largest norm of the gradients; larger gradients are scaled down; 0: no limit.",
              into<&Training::clip_norm>),
    row::text(
        "train.clip_norm_type", "2",
        "Order of the norm that clip_norm limits and grad_norm reports: \"2\" is the Euclidean one, \"1\" the sum "
        "of absolute values, \"inf\" the largest one; any other number above 0 is taken, too.",
        into<&Training::clip_norm_type>),
    row::whole("train.seed", "1", {0, kMostExact}, "Seed of weights and sample order: equal seeds train equal models.",
               into<&Training::seed>),
    row::choice("train.precision", "fp32", "fp32 bf16 fp16",
                "Number format of the computation; master weights stay in fp32; in fp16 the loss is scaled. fp16 is "
                "for GPUs: on most CPUs it is several times slower than fp32.",
                into<&Training::precision>),
    row::flag("train.deterministic", "false",
              "Whether equal runs on GPUs have equal bits; their kernels are slower then. On the CPU equal runs always "
              "have equal bits.",
              into<&Training::deterministic>),
    row::flag("train.cuda_graph", "false",
              "Whether a GPU replays each step from the fourth on as one CUDA graph, so that the host starts no kernel "
              "by itself: faster where layers are small. The learning rate is in fp32 then. For runs on GPUs of their "
              "own; not with fsdp.tight, fsdp.offload, fsdp.activation_offload, Lion, Adafactor, Muon, dampening, "
              "train.moments in bf16 or int8, or a "
              "scheduled weight "
              "decay.",
              into<&Training::cuda_graph>),
    row::whole("train.validation_every_steps", derived("100, or 0 with validation_every_epochs"), {0, kMostCount},
               "Steps between two validations; 0: none.", into<&Training::validation_every_steps>, "steps"),
    row::real("train.validation_every_epochs", "0", {0, 1'000'000},
              "Passes over the training data between two validations, beside validation_every_steps; 0: none.",
              into<&Training::validation_every_epochs>),
    row::whole("train.validation_batches", "8", {1, kMostSize}, "Batches in a validation.",
               into<&Training::validation_batches>),
    row::whole("train.early_stop", "0", {0, kMostCount},
               "Validations in a row without a better value of checkpoint.best (or else of validation/loss) after "
               "which the training ends, as if all steps were done; 0: never.",
               into<&Training::early_stop>, "validations"),
    row::real("train.early_stop_least", "0", {0, 1e9},
              "By how much a value must be better than the best one to count for early_stop.",
              into<&Training::early_stop_least>),
    row::path("train.log_folder",
              "Folder that gets the series of all steps as JSON lines (metrics.jsonl) and as TensorBoard's event "
              "files. Without it there are none; the dashboard and muster metrics need none.",
              into<&Training::log_folder>),
    row::text("train.frozen",
              "Parameters that do not train: beginnings of their names, with spaces between, such as "
              "\"model.embed_tokens model.layers.0.\".",
              into<&Training::frozen>),
    row::whole("train.max_skipped_steps", "10", {0, kMostCount},
               "Steps in a row that may be skipped because their gradients are not finite; one more ends the run. "
               "Steps that only lower the scale of the loss in fp16 do not count.",
               into<&Training::max_skipped_steps>, "steps"),
    row::whole("train.trace_step", "0", {0, kMostCount},
               "First step that each rank records for chrome://tracing and Perfetto, in trace/step-N.rankR.json in "
               "checkpoint.folder; 0: none.",
               into<&Training::trace_step>),
    row::whole("train.trace_steps", "1", {1, 1000},
               "How many steps are recorded, each in files of its own, from trace_step on.",
               into<&Training::trace_steps>, "steps"),
    row::whole("train.step_delay_ms", "0", {0, 3'600'000}, "Delay added to each step; for demonstrations and tests.",
               into<&Training::step_delay_ms>, "milliseconds"),
});

/// A tenth, rounded as people would write it: 3e-5 for 3e-4, not 2.9999999999999997e-05.
double tenth_of(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.12g", value / 10);
  return std::strtod(text, nullptr);
}

void derive_batch(Values& values, std::int64_t ranks) {
  const auto batch = values.whole("train.batch_size");
  if (!values.has("train.micro_batch_size")) {
    auto micro = kMicroBatch;
    if (batch > 0) {
      const auto share = batch % ranks == 0 ? batch / ranks : 1;
      while (share % micro != 0) --micro;  // ends at 1
    }
    values.set("train.micro_batch_size", micro);
  }
  if (batch == 0) {
    const auto most = static_cast<std::int64_t>(kMostCount);
    values.set("train.batch_size", std::min(values.whole("train.micro_batch_size") * ranks, most));
  }
}

void derive(Values& values, std::uint64_t ranks) {
  set_default(values, "train.validation_every_steps",
              values.real("train.validation_every_epochs") > 0 ? std::int64_t{0} : kValidationSteps);
  // The number of samples, and so the steps of epochs, are known on the ranks alone. They derive once more.
  if (values.real("train.epochs") == 0) set_default(values, "train.steps", kSteps);
  const bool knows_steps = values.has("train.steps");
  if (ranks > 0 && ranks <= kMostChecked) derive_batch(values, static_cast<std::int64_t>(ranks));
  const bool falls_by_steps = values.text("train.schedule") == "step";
  set_default(values, "train.min_learning_rate", falls_by_steps ? 0.0 : tenth_of(values.real("train.learning_rate")));
  if (knows_steps) set_default(values, "train.warmup_steps", std::min(kWarmupSteps, values.whole("train.steps") / 10));
  if (!falls_by_steps) return;
  set_default(values, "train.gamma", kGamma);
  if (!knows_steps) return;
  const auto left = values.whole("train.steps") - values.whole("train.warmup_steps");
  set_default(values, "train.step_size", std::max<std::int64_t>(1, left / kDrops));
}

void check_batch(const Training& train, std::int64_t ranks, std::vector<Conflict>& conflicts) {
  const auto micro = train.micro_batch_size, unit = micro * ranks;
  if (unit <= 0 || train.batch_size % unit == 0) return;
  add_conflict(conflicts, "train.batch_size",
               "want a multiple of " + std::to_string(unit) + " (micro_batch_size " + std::to_string(micro) + " x " +
                   std::to_string(ranks) + (ranks == 1 ? " rank)" : " ranks)"),
               multiples_near(train.batch_size, unit),
               {"train.micro_batch_size", "resources.nodes", "resources.ranks_per_node"});
}

void check(const Values& values, std::uint64_t ranks, std::vector<Conflict>& conflicts) {
  const auto train = bind<Training>(training(), values);
  if (ranks <= kMostChecked) check_batch(train, static_cast<std::int64_t>(ranks), conflicts);
  if (norm_order(train.clip_norm_type) == 0) {
    add_conflict(conflicts, "train.clip_norm_type", "want a number above 0, or \"inf\"", "\"2\" is the Euclidean norm");
  }
  if (train.min_learning_rate > train.learning_rate) {
    add_conflict(conflicts, "train.min_learning_rate",
                 "want at most learning_rate = " + print({.kind = Kind::kReal}, train.learning_rate),
                 "lower it, or leave it out for a tenth of learning_rate", {"train.learning_rate"});
  }
  if (train.steps > 0 && train.warmup_steps > train.steps) {
    add_conflict(conflicts, "train.warmup_steps", "want at most steps = " + std::to_string(train.steps),
                 "lower it, or leave it out for a tenth of steps", {"train.steps"});
  }
  if (train.epochs > 0 && train.steps > 0) {
    add_conflict(conflicts, "train.steps", "want none with epochs = " + print({.kind = Kind::kReal}, train.epochs),
                 "leave one of the two out", {"train.epochs"});
  }
  const bool validates = train.validation_every_steps > 0 || train.validation_every_epochs > 0;
  if (train.early_stop > 0 && !validates) {
    add_conflict(conflicts, "train.early_stop", "want 0 while nothing is validated",
                 "give validation_every_steps or validation_every_epochs a value above 0",
                 {"train.validation_every_steps", "train.validation_every_epochs"});
  }
  if (train.early_stop_least > 0 && train.early_stop == 0) {
    add_conflict(conflicts, "train.early_stop_least", "want early_stop above 0 with it", "leave it out",
                 {"train.early_stop"});
  }
  for (const auto* key : {"train.step_size", "train.gamma"}) {
    if (train.schedule == LearningRateSchedule::kStep || !values.has(key)) continue;
    add_conflict(conflicts, key, "want none with schedule = \"" + values.text("train.schedule") + "\"",
                 "set schedule = \"step\", or leave it out", {"train.schedule"});
  }
}

}  // namespace

double norm_order(std::string_view text) {
  if (text == "inf") return std::numeric_limits<double>::infinity();
  const auto number = parse({.kind = Kind::kReal}, text);
  const double order = number ? std::get<double>(*number) : 0;
  return std::isfinite(order) && order > 0 ? order : 0;
}

const Table& training() {
  static const Table table{"training", kKeys, derive, check};
  return table;
}

}  // namespace spec
