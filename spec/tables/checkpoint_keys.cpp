#include "spec/tables/checkpoint_keys.h"

#include <algorithm>
#include <array>

#include "spec/limits.h"

namespace spec {
namespace {

constexpr auto kCheckpointKeys = std::to_array<Key>({
    row::path("checkpoint.folder", derived("the job's own, in the controller's data folder"),
              "Folder of the checkpoints.", into<&Checkpoints::folder>),
    row::whole("checkpoint.every_steps", "100", {0, kMostCount},
               "Steps between two checkpoints; 0: only at the end and when asked to save and leave.",
               into<&Checkpoints::every_steps>, "steps"),
    row::whole("checkpoint.keep", "3", {1, 1'000'000}, "How many of the newest checkpoints are kept.",
               into<&Checkpoints::keep>),
    row::flag("checkpoint.asynchronous", "false",
              "Whether a checkpoint is written beside the training, which then waits for a copy of weights and states "
              "in memory alone. The copy takes as much memory of the host as they do.",
              into<&Checkpoints::asynchronous>),
    row::text(
        "checkpoint.best",
        "A series measured on held-out data, such as validation/loss. The checkpoint of its best step is kept besides "
        "the newest ones.",
        into<&Checkpoints::best>),
});

bool can_be_best(const Series& series) {
  return series.better != Better::kNeither && is_held_out(series.name);
}

/// The remedy "try validation/loss or validation/accuracy"; empty if no series can be the best.
std::string those_that_can(std::span<const Series> all) {
  std::string text;
  for (const auto& series : all) {
    if (can_be_best(series)) text += (text.empty() ? "try " : " or ") + series.name;
  }
  return text;
}

constexpr auto kExportKeys = std::to_array<Key>({
    row::path("train.export_folder",
              "Folder that gets the trained model at the end, as from_pretrained() of transformers reads it. It must "
              "be absent, empty or an earlier export. Without it nothing is exported.",
              into<&Exports::folder>),
    row::choice("train.export_dtype", "trained", "trained fp32 bf16 fp16",
                "Number format of the exported weights; trained: that of train.precision.", into<&Exports::dtype>),
    row::size("train.export_file_size", "5000000000B", {1024, 1099511627776},
              "The most bytes of one exported file. A larger tensor has a file of its own.",
              into<&Exports::file_bytes>),
    row::path("train.full_state_file",
              "File that gets all weights of the trained model at the end, as load_model() of safetensors reads them "
              "into a PyTorch model. They are gathered in the memory of rank 0's host first, in fp32. Without it "
              "nothing is gathered.",
              into<&Exports::full_state_file>),
});

}  // namespace

const Table& checkpoints() {
  static const Table table{"checkpoint", kCheckpointKeys};
  return table;
}

std::vector<Conflict> conflicts_of_best(std::span<const Series> series, const Values& values) {
  static constexpr std::string_view kBest = "checkpoint.best";
  static constexpr std::string_view kEvery = "train.validation_every_steps",
                                    kEveryEpochs = "train.validation_every_epochs", kShare = "data.validation_fraction";
  const auto name = values.text(kBest);
  if (name.empty() && values.whole("train.early_stop") > 0 &&
      std::ranges::find(series, kHeldOutLoss, &Series::name) == series.end()) {
    return {{"train.early_stop",
             "want checkpoint.best with it, because this recipe reports no " + std::string(kHeldOutLoss),
             "give checkpoint.best the series to watch; " + those_that_can(series),
             {std::string(kBest)}}};
  }
  if (name.empty()) return {};
  const auto conflict = [&](const std::string& want, const std::string& remedy, std::vector<std::string> related = {}) {
    return std::vector<Conflict>{{std::string(kBest), want, remedy, std::move(related)}};
  };
  const auto found = std::ranges::find(series, name, &Series::name);
  if (found == series.end()) return conflict("want a series that this recipe reports", those_that_can(series));
  if (!is_held_out(name)) {
    return conflict(
        "want a series measured on held-out data; any other changes with the batch of each step, and nearly "
        "every step would be saved as a new best",
        those_that_can(series));
  }
  if (found->better == Better::kNeither) {
    return conflict("want a series whose lower or higher values are better; this one has no better direction",
                    those_that_can(series));
  }
  const auto never = [&](std::string_view key) {
    if (key == kEvery && values.real(kEveryEpochs) > 0) return false;
    return values.has(key) && (key == kShare ? values.real(key) == 0 : values.whole(key) == 0);
  };
  for (const auto key : {kEvery, kShare}) {
    if (!never(key)) continue;
    return conflict("want no series while nothing is validated (" + std::string(key) + " = 0)",
                    "give " + std::string(key) + " a value above 0, or leave checkpoint.best out", {std::string(key)});
  }
  return {};
}

const Table& exports() {
  static const Table table{"export", kExportKeys};
  return table;
}

}  // namespace spec
