#include "spec/tables/dino_keys.h"

#include <algorithm>
#include <array>
#include <string>

#include "spec/tables/text_data_keys.h"

namespace spec {
namespace {

constexpr std::string_view kHeadsReduce = "fsdp.heads_reduce_precision", kTeacherStrategy = "fsdp.teacher_strategy",
                           kHeadsStrategy = "fsdp.heads_strategy";

constexpr auto kKeys = std::to_array<Key>({
    {.name = "data.global_crops_size",
     .kind = Kind::kWhole,
     .derived = "model.image_size",
     .low = 5,
     .high = 4096,
     .unit = "pixels",
     .meaning = "Side of the two large crops of an image; a multiple of model.patch_size.",
     .assign = into<&Dino::global_crops_size>},
    {.name = "data.local_crops_size",
     .kind = Kind::kWhole,
     .derived = "three sevenths of global_crops_size, in whole patches",
     .low = 5,
     .high = 4096,
     .unit = "pixels",
     .meaning = "Side of the small crops; a multiple of model.patch_size.",
     .assign = into<&Dino::local_crops_size>},
    {.name = "data.local_crops",
     .kind = Kind::kWhole,
     .standard = "8",
     .low = 0,
     .high = 64,
     .meaning = "Small crops of an image.",
     .assign = into<&Dino::local_crops>},
    {.name = "data.global_scale_low",
     .kind = Kind::kReal,
     .standard = "0.32",
     .low = 0,
     .high = 1,
     .above_low = true,
     .meaning = "The least share of an image that a large crop shows.",
     .assign = into<&Dino::global_scale_low>},
    {.name = "data.global_scale_high",
     .kind = Kind::kReal,
     .standard = "1",
     .low = 0,
     .high = 1,
     .above_low = true,
     .meaning = "The largest share of an image that a large crop shows.",
     .assign = into<&Dino::global_scale_high>},
    {.name = "data.local_scale_low",
     .kind = Kind::kReal,
     .standard = "0.05",
     .low = 0,
     .high = 1,
     .above_low = true,
     .meaning = "The least share of an image that a small crop shows.",
     .assign = into<&Dino::local_scale_low>},
    {.name = "data.local_scale_high",
     .kind = Kind::kReal,
     .standard = "0.32",
     .low = 0,
     .high = 1,
     .above_low = true,
     .meaning = "The largest share of an image that a small crop shows.",
     .assign = into<&Dino::local_scale_high>},
    {.name = "train.prototypes",
     .kind = Kind::kWhole,
     .standard = "65536",
     .low = 2,
     .high = 16'777'216,
     .meaning = "Prototypes that the heads compare images with.",
     .assign = into<&Dino::prototypes>},
    {.name = "train.head_hidden_size",
     .kind = Kind::kWhole,
     .standard = "2048",
     .low = 1,
     .high = 1'048'576,
     .meaning = "Width inside of a head.",
     .assign = into<&Dino::head_hidden_size>},
    {.name = "train.head_bottleneck_size",
     .kind = Kind::kWhole,
     .standard = "256",
     .low = 1,
     .high = 1'048'576,
     .meaning = "Width of a head before its prototypes.",
     .assign = into<&Dino::head_bottleneck_size>},
    {.name = "train.head_layers",
     .kind = Kind::kWhole,
     .standard = "3",
     .low = 1,
     .high = 16,
     .meaning = "Linear layers of a head before its prototypes.",
     .assign = into<&Dino::head_layers>},
    {.name = "train.dino_weight",
     .kind = Kind::kReal,
     .standard = "1",
     .low = 0,
     .high = 1000,
     .meaning = "Weight of the loss between crops of an image (DINO).",
     .assign = into<&Dino::dino_weight>},
    {.name = "train.ibot_weight",
     .kind = Kind::kReal,
     .standard = "1",
     .low = 0,
     .high = 1000,
     .meaning = "Weight of the loss of masked patches (iBOT); 0: no patch is masked.",
     .assign = into<&Dino::ibot_weight>},
    {.name = "train.koleo_weight",
     .kind = Kind::kReal,
     .standard = "0.1",
     .low = 0,
     .high = 1000,
     .meaning = "Weight of the loss that spreads the images of a batch (KoLeo).",
     .assign = into<&Dino::koleo_weight>},
    {.name = "train.ibot_separate_head",
     .kind = Kind::kFlag,
     .standard = "false",
     .meaning = "Whether masked patches have a head of their own.",
     .assign = into<&Dino::ibot_separate_head>},
    {.name = "train.mask_probability",
     .kind = Kind::kReal,
     .standard = "0.5",
     .low = 0,
     .high = 1,
     .meaning = "Probability that patches of a large crop are masked.",
     .assign = into<&Dino::mask_probability>},
    {.name = "train.mask_share_low",
     .kind = Kind::kReal,
     .standard = "0.1",
     .low = 0,
     .high = 1,
     .meaning = "The least share of its patches that is masked then.",
     .assign = into<&Dino::mask_share_low>},
    {.name = "train.mask_share_high",
     .kind = Kind::kReal,
     .standard = "0.5",
     .low = 0,
     .high = 1,
     .meaning = "The largest share of its patches that is masked then.",
     .assign = into<&Dino::mask_share_high>},
    {.name = "train.centering",
     .kind = Kind::kChoice,
     .standard = "centering",
     .choices = "centering sinkhorn_knopp",
     .meaning = "How the teacher's answers are kept from becoming all alike.",
     .assign = into<&Dino::centering>},
    {.name = "train.student_temperature",
     .kind = Kind::kReal,
     .standard = "0.1",
     .low = 0,
     .high = 10,
     .above_low = true,
     .meaning = "Temperature of the student's answers.",
     .assign = into<&Dino::student_temperature>},
    {.name = "train.teacher_temperature",
     .kind = Kind::kReal,
     .standard = "0.07",
     .low = 0,
     .high = 10,
     .above_low = true,
     .meaning = "Temperature of the teacher's answers after the warm-up.",
     .assign = into<&Dino::teacher_temperature>},
    {.name = "train.first_teacher_temperature",
     .kind = Kind::kReal,
     .standard = "0.04",
     .low = 0,
     .high = 10,
     .above_low = true,
     .meaning = "Temperature of the teacher's answers at the start.",
     .assign = into<&Dino::first_teacher_temperature>},
    {.name = "train.temperature_warmup_epochs",
     .kind = Kind::kReal,
     .standard = "30",
     .low = 0,
     .high = 1'000'000,
     .meaning = "Epochs in which the teacher's temperature rises.",
     .assign = into<&Dino::temperature_warmup_epochs>},
    {.name = "train.teacher_momentum",
     .kind = Kind::kReal,
     .standard = "0.992",
     .low = 0,
     .high = 1,
     .meaning = "How much of the teacher stays in a step, at the start. The rest comes from the student.",
     .assign = into<&Dino::teacher_momentum>},
    {.name = "train.final_teacher_momentum",
     .kind = Kind::kReal,
     .standard = "1",
     .low = 0,
     .high = 1,
     .meaning = "How much of the teacher stays at the end; by a cosine in between.",
     .assign = into<&Dino::final_teacher_momentum>},
    {.name = "train.center_momentum",
     .kind = Kind::kReal,
     .standard = "0.9",
     .low = 0,
     .high = 1,
     .meaning = "How much of the centre of the answers stays in a step.",
     .assign = into<&Dino::center_momentum>},
    {.name = "train.freeze_last_layer_epochs",
     .kind = Kind::kReal,
     .standard = "1",
     .low = 0,
     .high = 1'000'000,
     .meaning = "Epochs at the start in which the prototypes do not train.",
     .assign = into<&Dino::freeze_last_layer_epochs>},
    {.name = "train.patch_embed_rate",
     .kind = Kind::kReal,
     .standard = "0.2",
     .low = 0,
     .high = 1,
     .meaning = "Factor of the learning rate of the patch embedding.",
     .assign = into<&Dino::patch_embed_rate>},
    {.name = "train.knn_neighbours",
     .kind = Kind::kWhole,
     .standard = "20",
     .low = 1,
     .high = 100'000,
     .meaning = "Neighbours that vote for a class in an evaluation.",
     .assign = into<&Dino::knn_neighbours>},
    {.name = "train.knn_samples",
     .kind = Kind::kWhole,
     .standard = "2000",
     .low = 1,
     .high = 10'000'000,
     .unit = "images",
     .meaning = "Training images that an evaluation compares with.",
     .assign = into<&Dino::knn_samples>},
    {.name = "train.teacher_precision",
     .kind = Kind::kChoice,
     .standard = "run",
     .choices = "run fp32 bf16 fp16",
     .meaning = "The format in which the teacher computes and is gathered; run: train.precision. Its weights stay in "
                "fp32, as an average of the student's.",
     .assign = into<&Dino::teacher_precision>},
    {.name = "train.heads_precision",
     .kind = Kind::kChoice,
     .standard = "run",
     .choices = "run fp32 bf16 fp16",
     .meaning = "The format in which the heads of student and teacher compute and are gathered; run: that of the "
                "backbone.",
     .assign = into<&Dino::heads_precision>},
    {.name = kHeadsReduce,
     .kind = Kind::kChoice,
     .standard = "run",
     .choices = "run fp32 bf16 fp16",
     .meaning = "The format in which the gradients of the student's heads are accumulated and summed over ranks; run: "
                "fsdp.reduce_precision.",
     .assign = into<&Dino::heads_reduce_precision>},
    {.name = kTeacherStrategy,
     .kind = Kind::kChoice,
     .standard = "run",
     .choices = "run full_shard shard_grad_op zero1",
     .meaning = "How long the teacher's gathered weights stay. full_shard: for a block's forward. zero1: until the "
                "teacher changes, at the end of a step, so that several micro-batches gather them once. run: by "
                "fsdp.strategy. The teacher has no backward, so it has no shard_grad_op of its own, and that of "
                "fsdp.strategy is full_shard for it.",
     .assign = into<&Dino::teacher_strategy>},
    {.name = kHeadsStrategy,
     .kind = Kind::kChoice,
     .standard = "run",
     .choices = "run full_shard shard_grad_op zero1",
     .meaning = "The same for the heads of the student, as fsdp.strategy has it for its backbone.",
     .assign = into<&Dino::heads_strategy>},
});

/// The side of a local crop in pixels where none is given: 96 of 224 pixels of a global crop, as in DINOv2, in whole
/// patches, and never below the 5 pixels that a crop's blur needs.
std::int64_t local_crops_size_of(std::int64_t global_crops_size, std::int64_t patch_size) {
  const auto least = (5 + patch_size - 1) / patch_size;
  return std::max(global_crops_size * 3 / 7 / patch_size, least) * patch_size;
}

void derive(Values& values, std::uint64_t /*ranks*/) {
  const auto patch = values.whole("model.patch_size");
  if (!values.has("data.global_crops_size") && values.has("model.image_size"))
    values.set("data.global_crops_size", values.whole("model.image_size"));
  if (!values.has("data.local_crops_size") && values.has("data.global_crops_size") && patch > 0) {
    values.set("data.local_crops_size", local_crops_size_of(values.whole("data.global_crops_size"), patch));
  }
}

/// Keys of one part need what the rest of the run gives them something to do with.
void check_parts(const Values& values, std::vector<Conflict>& conflicts) {
  const bool whole = values.text("fsdp.strategy") == "no_shard";
  for (const auto key : {kTeacherStrategy, kHeadsStrategy}) {
    if (!whole || values.text(key).empty() || values.text(key) == "run") continue;
    conflicts.push_back({std::string(key),
                         "want \"run\" with fsdp.strategy = \"no_shard\", where no weight is gathered",
                         "remove it, because it has no effect",
                         {"fsdp.strategy"}});
  }
  if (values.text(kTeacherStrategy) == "shard_grad_op") {
    conflicts.push_back(
        {std::string(kTeacherStrategy),
         "want \"full_shard\" or \"zero1\", because the teacher has no backward until which weights stay",
         "take \"full_shard\", which is the same for it",
         {}});
  }
  if (values.text(kHeadsReduce) == "fp16" && values.text("train.precision") != "fp16") {
    conflicts.push_back({std::string(kHeadsReduce),
                         "want train.precision = \"fp16\" with it, because unscaled gradients vanish in fp16",
                         "take \"bf16\"",
                         {"train.precision"}});
  }
  if (values.text("train.heads_precision") == "fp16" && values.text("train.precision") != "fp16") {
    conflicts.push_back({"train.heads_precision",
                         "want train.precision = \"fp16\" with it, because unscaled gradients vanish in fp16",
                         "take \"bf16\"",
                         {"train.precision"}});
  }
}

void check(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  want_prepared_data(values, conflicts);
  const auto patch = values.whole("model.patch_size");
  for (const char* key : {"data.global_crops_size", "data.local_crops_size"}) {
    const auto size = values.whole(key);
    if (patch == 0 || size % patch == 0) continue;
    conflicts.push_back({key,
                         "want a multiple of model.patch_size = " + std::to_string(patch),
                         multiples_near(size, patch),
                         {"model.patch_size"}});
  }
  const auto in_order = [&](const char* low, const char* high) {
    if (values.real(low) <= values.real(high)) return;
    conflicts.push_back({low, "want at most " + std::string(high), "exchange the two", {high}});
  };
  in_order("data.global_scale_low", "data.global_scale_high");
  in_order("data.local_scale_low", "data.local_scale_high");
  in_order("train.mask_share_low", "train.mask_share_high");
  check_parts(values, conflicts);
  if (values.real("train.average_decay") > 0) {
    conflicts.push_back({"train.average_decay",
                         "want 0 with this recipe, which evaluates and exports the teacher",
                         "train.teacher_momentum is the decay rate of the teacher, an average of the student",
                         {}});
  }
  if (values.real("train.ibot_weight") > 0 && values.has("model.use_mask_token") &&
      !values.flag("model.use_mask_token")) {
    conflicts.push_back({"train.ibot_weight",
                         "want 0 with a model without a mask token",
                         "set model.use_mask_token = true, or ibot_weight = 0",
                         {"model.use_mask_token"}});
  }
}

}  // namespace

const Table& dino() {
  static const Table table{"dino", kKeys, derive, check};
  return table;
}

}  // namespace spec
