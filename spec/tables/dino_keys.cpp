#include "spec/tables/dino_keys.h"

#include <algorithm>
#include <array>
#include <string>

#include "spec/tables/shared_rules.h"
#include "spec/tables/text_data_keys.h"

namespace spec {
namespace {

constexpr std::string_view kHeadsReduce = "fsdp.heads_reduce_precision", kTeacherStrategy = "fsdp.teacher_strategy",
                           kHeadsStrategy = "fsdp.heads_strategy";

constexpr auto kKeys = std::to_array<Key>({
    row::whole("data.global_crops_size", derived("model.image_size"), {5, 4096},
               "Side of the two large crops of an image; a multiple of model.patch_size.",
               into<&Dino::global_crops_size>, "pixels"),
    row::whole("data.local_crops_size", derived("three sevenths of global_crops_size, in whole patches"), {5, 4096},
               "Side of the small crops; a multiple of model.patch_size.", into<&Dino::local_crops_size>, "pixels"),
    row::whole("data.local_crops", "8", {0, 64}, "Small crops of an image.", into<&Dino::local_crops>),
    row::real("data.global_scale_low", "0.32", above(0, 1), "The least share of an image that a large crop shows.",
              into<&Dino::global_scale_low>),
    row::real("data.global_scale_high", "1", above(0, 1), "The largest share of an image that a large crop shows.",
              into<&Dino::global_scale_high>),
    row::real("data.local_scale_low", "0.05", above(0, 1), "The least share of an image that a small crop shows.",
              into<&Dino::local_scale_low>),
    row::real("data.local_scale_high", "0.32", above(0, 1), "The largest share of an image that a small crop shows.",
              into<&Dino::local_scale_high>),
    row::whole("train.prototypes", "65536", {2, 16'777'216}, "Prototypes that the heads compare images with.",
               into<&Dino::prototypes>),
    row::whole("train.head_hidden_size", "2048", {1, 1'048'576}, "Width inside of a head.",
               into<&Dino::head_hidden_size>),
    row::whole("train.head_bottleneck_size", "256", {1, 1'048'576}, "Width of a head before its prototypes.",
               into<&Dino::head_bottleneck_size>),
    row::whole("train.head_layers", "3", {1, 16}, "Linear layers of a head before its prototypes.",
               into<&Dino::head_layers>),
    row::real("train.dino_weight", "1", {0, 1000}, "Weight of the loss between crops of an image (DINO).",
              into<&Dino::dino_weight>),
    row::real("train.ibot_weight", "1", {0, 1000},
              "Weight of the loss of masked patches (iBOT); 0: no patch is masked.", into<&Dino::ibot_weight>),
    row::real("train.koleo_weight", "0.1", {0, 1000}, "Weight of the loss that spreads the images of a batch (KoLeo).",
              into<&Dino::koleo_weight>),
    row::flag("train.ibot_separate_head", "false", "Whether masked patches have a head of their own.",
              into<&Dino::ibot_separate_head>),
    row::real("train.mask_probability", "0.5", {0, 1}, "Probability that patches of a large crop are masked.",
              into<&Dino::mask_probability>),
    row::real("train.mask_share_low", "0.1", {0, 1}, "The least share of its patches that is masked then.",
              into<&Dino::mask_share_low>),
    row::real("train.mask_share_high", "0.5", {0, 1}, "The largest share of its patches that is masked then.",
              into<&Dino::mask_share_high>),
    row::choice("train.centering", "centering", "centering sinkhorn_knopp",
                "How the teacher's answers are kept from becoming all alike.", into<&Dino::centering>),
    row::real("train.student_temperature", "0.1", above(0, 10), "Temperature of the student's answers.",
              into<&Dino::student_temperature>),
    row::real("train.teacher_temperature", "0.07", above(0, 10),
              "Temperature of the teacher's answers after the warm-up.", into<&Dino::teacher_temperature>),
    row::real("train.first_teacher_temperature", "0.04", above(0, 10),
              "Temperature of the teacher's answers at the start.", into<&Dino::first_teacher_temperature>),
    row::real("train.temperature_warmup_epochs", "30", {0, 1'000'000},
              "Epochs in which the teacher's temperature rises.", into<&Dino::temperature_warmup_epochs>),
    row::real("train.teacher_momentum", "0.992", {0, 1},
              "How much of the teacher stays in a step, at the start. The rest comes from the student.",
              into<&Dino::teacher_momentum>),
    row::real("train.final_teacher_momentum", "1", {0, 1},
              "How much of the teacher stays at the end; by a cosine in between.", into<&Dino::final_teacher_momentum>),
    row::real("train.center_momentum", "0.9", {0, 1}, "How much of the centre of the answers stays in a step.",
              into<&Dino::center_momentum>),
    row::real("train.freeze_last_layer_epochs", "1", {0, 1'000'000},
              "Epochs at the start in which the prototypes do not train.", into<&Dino::freeze_last_layer_epochs>),
    row::real("train.patch_embed_rate", "0.2", {0, 1}, "Factor of the learning rate of the patch embedding.",
              into<&Dino::patch_embed_rate>),
    row::whole("train.knn_neighbours", "20", {1, 100'000}, "Neighbours that vote for a class in an evaluation.",
               into<&Dino::knn_neighbours>),
    row::whole("train.knn_samples", "2000", {1, 10'000'000}, "Training images that an evaluation compares with.",
               into<&Dino::knn_samples>, "images"),
    row::choice("train.teacher_precision", "run", "run fp32 bf16 fp16",
                "The format in which the teacher computes and is gathered; run: train.precision. Its weights stay in "
                "fp32, as an average of the student's.",
                into<&Dino::teacher_precision>),
    row::choice("train.heads_precision", "run", "run fp32 bf16 fp16",
                "The format in which the heads of student and teacher compute and are gathered; run: that of the "
                "backbone.",
                into<&Dino::heads_precision>),
    row::choice(kHeadsReduce, "run", "run fp32 bf16 fp16",
                "The format in which the gradients of the student's heads are accumulated and summed over ranks; run: "
                "fsdp.reduce_precision.",
                into<&Dino::heads_reduce_precision>),
    row::choice(kTeacherStrategy, "run", "run full_shard shard_grad_op zero1",
                "How long the teacher's gathered weights stay. full_shard: for a block's forward. zero1: until the "
                "teacher changes, at the end of a step, so that several micro-batches gather them once. run: by "
                "fsdp.strategy. The teacher has no backward, so it has no shard_grad_op of its own, and that of "
                "fsdp.strategy is full_shard for it.",
                into<&Dino::teacher_strategy>),
    row::choice(kHeadsStrategy, "run", "run full_shard shard_grad_op zero1",
                "The same for the heads of the student, as fsdp.strategy has it for its backbone.",
                into<&Dino::heads_strategy>),
});

/// The side of a local crop in pixels where none is given: 96 of 224 pixels of a global crop, as in DINOv2, in whole
/// patches, and never below the 5 pixels that a crop's blur needs.
std::int64_t local_crops_size_of(std::int64_t global_crops_size, std::int64_t patch_size) {
  const auto least = (5 + patch_size - 1) / patch_size;
  return std::max(global_crops_size * 3 / 7 / patch_size, least) * patch_size;
}

void derive(Values& values, std::uint64_t /*ranks*/) {
  const auto patch = values.whole("model.patch_size");
  if (values.has("model.image_size")) set_default(values, "data.global_crops_size", values.whole("model.image_size"));
  if (values.has("data.global_crops_size") && patch > 0) {
    set_default(values, "data.local_crops_size", local_crops_size_of(values.whole("data.global_crops_size"), patch));
  }
}

/// Keys of one part need what the rest of the run gives them something to do with.
void check_parts(const Values& values, std::vector<Conflict>& conflicts) {
  const bool whole = values.text("fsdp.strategy") == "no_shard";
  for (const auto key : {kTeacherStrategy, kHeadsStrategy}) {
    if (!whole || values.text(key).empty() || values.text(key) == "run") continue;
    add_conflict(conflicts, key, "want \"run\" with fsdp.strategy = \"no_shard\", where no weight is gathered",
                 "remove it, because it has no effect", {"fsdp.strategy"});
  }
  if (values.text(kTeacherStrategy) == "shard_grad_op") {
    add_conflict(conflicts, kTeacherStrategy,
                 "want \"full_shard\" or \"zero1\", because the teacher has no backward until which weights stay",
                 "take \"full_shard\", which is the same for it");
  }
  want_scaled_loss(values, kHeadsReduce, conflicts);
  want_scaled_loss(values, "train.heads_precision", conflicts);
}

void check(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  want_prepared_data(values, conflicts);
  const auto patch = values.whole("model.patch_size");
  for (const char* key : {"data.global_crops_size", "data.local_crops_size"}) {
    const auto size = values.whole(key);
    if (patch == 0 || size % patch == 0) continue;
    add_conflict(conflicts, key, "want a multiple of model.patch_size = " + std::to_string(patch),
                 multiples_near(size, patch), {"model.patch_size"});
  }
  const auto in_order = [&](const char* low, const char* high) {
    if (values.real(low) <= values.real(high)) return;
    add_conflict(conflicts, low, "want at most " + std::string(high), "exchange the two", {high});
  };
  in_order("data.global_scale_low", "data.global_scale_high");
  in_order("data.local_scale_low", "data.local_scale_high");
  in_order("train.mask_share_low", "train.mask_share_high");
  check_parts(values, conflicts);
  if (values.real("train.average_decay") > 0) {
    add_conflict(conflicts, "train.average_decay", "want 0 with this recipe, which evaluates and exports the teacher",
                 "train.teacher_momentum is the decay rate of the teacher, an average of the student");
  }
  if (values.real("train.ibot_weight") > 0 && values.has("model.use_mask_token") &&
      !values.flag("model.use_mask_token")) {
    add_conflict(conflicts, "train.ibot_weight", "want 0 with a model without a mask token",
                 "set model.use_mask_token = true, or ibot_weight = 0", {"model.use_mask_token"});
  }
}

}  // namespace

const Table& dino() {
  static const Table table{"dino", kKeys, derive, check};
  return table;
}

}  // namespace spec
