#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "base/usage_error.h"
#include "fsdp/engine/initialize.h"
#include "fsdp/optim/average.h"
#include "spec/tables/dino_keys.h"
#include "spec/tables/dinov2_keys.h"
#include "worker/batch/images.h"
#include "worker/metrics/nearest_neighbours.h"
#include "worker/models/config_json.h"
#include "worker/models/dinov2/dinov2_model.h"
#include "worker/models/dinov2/heads.h"
#include "worker/recipes/data_of_run.h"
#include "worker/recipes/dino_loss.h"
#include "worker/recipes/registry.h"
#include "worker/train/evaluation.h"
#include "worker/train/start_weights.h"
#include "worker/train/strategy.h"

namespace worker {
namespace {

constexpr const char *kStudent = "student", *kTeacher = "teacher", *kCentres = "centres";
constexpr std::string_view kBackbone = "backbone.";
constexpr int kPrototypeRate = 1;  // the rate of the heads' prototypes; see Optimizer::set_rate()
constexpr std::int64_t kSinkhornRounds = 3, kChannels = 3;
constexpr double kKnnTemperature = 0.07;

/// Centres of the teacher's answers: no model, but a part of checkpoints that any number of ranks can load.
struct Centres : torch::nn::Module, Wrapped {
  explicit Centres(std::int64_t prototypes) {
    register_parameter("dino_center", at::empty({1, prototypes}));
    register_parameter("ibot_center", at::empty({1, prototypes}));
  }
};

double cosine(double from, double to, double share) {
  return to + (from - to) * (1 + std::cos(std::numbers::pi * std::clamp(share, 0.0, 1.0))) / 2;
}

class Dino : public FolderRecipe {
 public:
  explicit Dino(const RunConfig& config)
      : FolderRecipe(config, data::format::Kind::kImages),
        chosen_(choose_model(config, 0)),
        options_(spec::bind<spec::Dino>(spec::dino(), chosen_.values)),
        backbone_(spec::bind<spec::Dinov2>(spec::dinov2(), chosen_.values)) {}

  RunData open_data(const std::string&, const agent::rank::RankEnvironment& place) override {
    if (backbone_.num_channels != kChannels) {
      throw base::UsageError("model.num_channels = " + std::to_string(backbone_.num_channels) +
                             ": prepared images have red, green and blue; want a model of 3 channels");
    }
    RunData out = folder_.open(place);
    train_ = image_crops(folder_.data().train, crop_options());
    bank_ = images_of(folder_.data().train, options_.global_crops_size);
    if (folder_.data().validation) validation_ = images_of(folder_.data().validation, options_.global_crops_size);
    return out;
  }

  Batch of_sizes(std::int64_t samples) const override {
    const std::int64_t global = options_.global_crops_size, local = options_.local_crops_size;
    const std::int64_t patches = (global / backbone_.patch_size) * (global / backbone_.patch_size);
    const auto masked = static_cast<std::int64_t>(static_cast<double>(kGlobalCrops * samples * patches) *
                                                  (masks() ? options_.mask_probability * options_.mask_share_high : 0));
    Batch batch;
    batch.tensors["global_crops"] = at::empty({kGlobalCrops * samples, kChannels, global, global});
    batch.tensors["local_crops"] = at::empty({options_.local_crops * samples, kChannels, local, local});
    batch.tensors["masks"] = at::empty({kGlobalCrops * samples, patches}, at::kBool);
    batch.tensors["masked"] = at::empty({masked}, at::kLong);
    batch.tensors["mask_weight"] = at::empty({masked});
    batch.samples = samples;
    batch.weight = static_cast<double>(samples);
    return batch;
  }

  std::vector<Part> parts() override {
    const fsdp::MetaDeviceGuard guard;
    student_ = std::make_shared<SelfDistilled>(backbone_, head_sizes(), options_.ibot_separate_head);
    teacher_ = std::make_shared<SelfDistilled>(backbone_, head_sizes(), options_.ibot_separate_head);
    Part student{.name = kStudent, .module = student_};
    student.group = [this](const fsdp::ParameterInfo& parameter) { return group_of(parameter); };
    student.layers_above = [this](const std::string& name) {
      // Heads have the full rate, as DINOv2 has it.
      return is_of_dino_head(name) ? 0 : chosen_.family->layers_above(chosen_.values, name.substr(kBackbone.size()));
    };
    student.is_unit = is_head;
    student.options = [this](const torch::nn::Module& unit, fsdp::ShardOptions options) {
      if (is_head(unit)) set_options_of_heads(options);
      return options;
    };
    Part teacher{.name = kTeacher, .module = teacher_, .trained = false};
    teacher.is_unit = is_head;
    teacher.options = [this](const torch::nn::Module& unit, fsdp::ShardOptions options) {
      set_precision(options_.teacher_precision, options);
      set_strategy(options_.teacher_strategy, options);
      if (is_head(unit)) set_precision(options_.heads_precision, options);
      return options;
    };
    Part centres{.name = kCentres, .module = std::make_shared<Centres>(options_.prototypes), .trained = false};
    return {student, teacher, centres};
  }

  void attach(Parts& parts) override {
    parts_ = &parts;
    const auto on_device = at::TensorOptions(at::kFloat).device(parts.mesh().device());
    dino_centre_ = at::zeros({1, options_.prototypes}, on_device);
    ibot_centre_ = at::zeros({1, options_.prototypes}, on_device);
  }

  std::string first_values(Parts& parts) override {
    StartOptions options;
    options.prefix = kBackbone;
    options.is_own = [](const std::string& name) { return is_of_dino_head(name); };
    options.draw_own = [this](const std::string& name, const at::Tensor& values, at::Generator& random) {
      draw_dino_head(head_sizes(), name, values, random);
    };
    std::string origin = start_weights(chosen_, config_.train.seed, parts.trained(), options);
    fsdp::copy_shards(parts.model(kTeacher), parts.trained());
    save_centres();
    return origin;
  }

  void before_step(std::int64_t /*step*/, double epoch) override {
    const double warm_up = options_.temperature_warmup_epochs;
    const double share = warm_up > 0 ? std::min(epoch / warm_up, 1.0) : 1.0;
    temperature_ = options_.first_teacher_temperature +
                   share * (options_.teacher_temperature - options_.first_teacher_temperature);
    parts_->optimizer().set_rate(kPrototypeRate, epoch < options_.freeze_last_layer_epochs ? 0 : 1);
  }

  Losses loss(const Batch& batch) override {
    const at::Tensor none;
    const at::Tensor& global = batch.at("global_crops");
    const at::Tensor masked = masks() ? batch.at("masked") : none;
    const Targets targets = targets_of(global, masked);
    const auto seen = student_->forward(global, masks() ? batch.at("masks") : none, masked);
    const at::Tensor local = options_.local_crops > 0 ? student_->forward(batch.at("local_crops")).dino : at::Tensor();
    const auto images = static_cast<double>(batch.samples);
    const at::Tensor dino = dino_loss(seen.dino, local, targets.dino, options_.student_temperature) * images;
    const at::Tensor koleo = koleo_loss(seen.cls) * images;
    const at::Tensor ibot = masks() ? ibot_loss(seen.ibot, targets.ibot, batch.at("mask_weight"), global.size(0),
                                                options_.student_temperature) *
                                          images
                                    : at::zeros({}, dino.options());
    Losses out{options_.dino_weight * dino + options_.ibot_weight * ibot + options_.koleo_weight * koleo,
               {dino, koleo}};
    if (masks()) out.more.push_back(ibot);
    return out;
  }

  std::vector<std::string> step_series() const override {
    std::vector<std::string> series{"dino_loss", "koleo_loss"};
    if (masks()) series.emplace_back("ibot_loss");
    return series;
  }
  std::string why_no_fixed_shapes() const override { return "the number of masked patches differs by batch"; }

  void after_step(std::int64_t step) override {
    const double share = static_cast<double>(step) / static_cast<double>(config_.train.steps);
    fsdp::average_into(parts_->model(kTeacher), parts_->trained(),
                       cosine(options_.teacher_momentum, options_.final_teacher_momentum, share));
  }

  /// How well the nearest images of the training set, by the teacher's features, name the class of a validation image;
  /// and the same by pixels.
  void evaluate(Evaluation& evaluation) override {
    if (!has_classes()) return;
    const auto by_teacher = [this](const at::Tensor& pixels) { return teacher_->features(pixels).to(at::kFloat); };
    evaluation.set("validation/knn_accuracy", knn(evaluation, by_teacher));
    if (!pixel_knn_) pixel_knn_ = knn(evaluation, [](const at::Tensor& pixels) { return pixels.flatten(1); });
    evaluation.set("validation/pixel_knn_accuracy", *pixel_knn_);
  }

  std::string why_not_measured(std::string_view series) const override {
    if (!series.ends_with("knn_accuracy") || has_classes()) return {};
    return "the images have no classes; prepare them from a folder with a folder for each class, or leave the key out";
  }

  void save(fsdp::Json& extra) const override {
    note_model(chosen_, architecture(), extra);
    save_centres();
  }

  void load(const fsdp::Json&) override {
    const auto saved = parts_->model(kCentres).gather_full_state();
    dino_centre_.copy_(saved.at("dino_center"));
    ibot_centre_.copy_(saved.at("ibot_center"));
  }

  /// The teacher's backbone.
  fsdp::ShardedModel& exported(Parts& parts, fsdp::ExportOptions& options) override {
    options.texts[kModelConfigFile] = config_text(chosen_, architecture(), *options.dtype);
    options.texts[kPreprocessorFile] = dinov2_preprocessor(chosen_.values).dump(2) + "\n";
    options.name_of = [](const std::string& name) {
      return name.starts_with(kBackbone) ? std::optional(name.substr(kBackbone.size())) : std::nullopt;
    };
    return parts.model(kTeacher);
  }

 private:
  struct Targets {
    at::Tensor dino, ibot;
  };

  std::string_view architecture() const { return chosen_.family->architectures.front(); }
  bool has_classes() const { return folder_.description() != nullptr && !folder_.description()->labels.empty(); }
  bool masks() const { return options_.ibot_weight > 0; }

  static bool is_head(const torch::nn::Module& module) { return dynamic_cast<const DinoHead*>(&module) != nullptr; }

  void set_precision(std::optional<spec::Precision> own, fsdp::ShardOptions& options) const {
    if (own) set_param_dtype(dtype_of(*own), config_.fsdp.fp32_norms, options.precision);
  }

  void set_strategy(std::optional<spec::Strategy> own, fsdp::ShardOptions& options) const {
    if (own) apply_strategy(*own, config_.fsdp, options);
  }

  void set_options_of_heads(fsdp::ShardOptions& options) const {
    set_precision(options_.heads_precision, options);
    set_strategy(options_.heads_strategy, options);
    if (options_.heads_reduce_precision) options.precision.reduce_dtype = dtype_of(*options_.heads_reduce_precision);
  }

  DinoHeadSizes head_sizes() const {
    return {options_.head_hidden_size, options_.head_bottleneck_size, options_.prototypes, options_.head_layers};
  }

  CropOptions crop_options() const {
    CropOptions crops;
    crops.global_size = options_.global_crops_size;
    crops.local_size = options_.local_crops_size;
    crops.local_crops = options_.local_crops;
    crops.patch_size = backbone_.patch_size;
    crops.global_low = options_.global_scale_low;
    crops.global_high = options_.global_scale_high;
    crops.local_low = options_.local_scale_low;
    crops.local_high = options_.local_scale_high;
    crops.mask_probability = masks() ? options_.mask_probability : 0;
    crops.mask_low = options_.mask_share_low;
    crops.mask_high = options_.mask_share_high;
    return crops;
  }

  fsdp::ParameterGroup group_of(const fsdp::ParameterInfo& parameter) const {
    fsdp::ParameterGroup group = fsdp::decay_matrices(parameter);
    if (parameter.name.find("patch_embeddings") != std::string::npos) group.lr_scale *= options_.patch_embed_rate;
    if (parameter.name.find("last_layer") != std::string::npos) group.rate = kPrototypeRate;
    return group;
  }

  /// Returns the answers that the student should give to the crops. Collective.
  Targets targets_of(const at::Tensor& global, const at::Tensor& masked) {
    const at::NoGradGuard no_grad;
    const auto said = teacher_->forward(global, {}, masked);
    return {shares(said.dino, dino_centre_), masked.defined() ? shares(said.ibot, ibot_centre_) : at::Tensor()};
  }

  at::Tensor shares(const at::Tensor& answers, at::Tensor& centre) const {
    if (options_.centering == spec::Centering::kSinkhornKnopp)
      return sinkhorn_knopp(answers, temperature_, kSinkhornRounds, over_ranks(fsdp::Reduction::kSum),
                            over_ranks(fsdp::Reduction::kMax));
    at::Tensor out = centred_softmax(answers, centre, temperature_);
    centre = updated_centre(centre, answers, options_.center_momentum, over_ranks(fsdp::Reduction::kSum));
    return out;
  }

  ReduceOverRanks over_ranks(fsdp::Reduction how) const {
    return [&mesh = parts_->mesh(), how](at::Tensor& values) {
      mesh.shard().all_reduce(values, how);
      if (auto* replicate = mesh.replicate()) replicate->all_reduce(values, how);
    };
  }

  /// Whole values are the same on all ranks, and each keeps its slice.
  void save_centres() const {
    parts_->model(kCentres).load_full_state({{"dino_center", dino_centre_}, {"ibot_center", ibot_centre_}});
  }

  struct Features {
    at::Tensor rows, labels;
  };

  /// Features of the first images of a source, on all ranks. Each rank computes its share. Collective.
  template <class Describe>
  Features features_of(Evaluation& evaluation, const BatchSource& source, std::int64_t most, Describe describe) {
    const std::int64_t count = std::min(most, source.samples());
    const std::int64_t micro = evaluation.micro_batch_size(), ranks = evaluation.mesh().world_size();
    at::Tensor all;  // features, and in the last column the label
    for (std::int64_t base = 0; base < count; base += micro * ranks) {
      const std::int64_t begin = std::min(base + evaluation.mesh().rank() * micro, count);
      const std::int64_t end = std::min(begin + micro, count);
      std::vector<std::int64_t> chosen;
      for (std::int64_t i = begin; i < std::max(end, begin + 1); ++i) chosen.push_back(std::min(i, count - 1));
      const std::vector<std::uint64_t> draws(chosen.size());
      const Batch batch = source.collate(chosen, draws).to(evaluation.mesh().device());
      const at::Tensor rows = describe(batch.at("pixels")).cpu();
      if (!all.defined()) all = at::zeros({count, rows.size(1) + 1}, at::kFloat);
      if (end <= begin) continue;  // a rank without images left makes the call all the same
      all.slice(0, begin, end).slice(1, 0, rows.size(1)).copy_(rows);
      all.slice(0, begin, end).select(1, rows.size(1)).copy_(batch.at("labels"));
    }
    evaluation.mesh().control().all_reduce(all);
    return {all.slice(1, 0, all.size(1) - 1), all.select(1, all.size(1) - 1).to(at::kLong)};
  }

  template <class Describe>
  double knn(Evaluation& evaluation, Describe describe) {
    const Features bank = features_of(evaluation, *bank_, options_.knn_samples, describe);
    const Features queries = features_of(evaluation, *validation_, evaluation.samples(), describe);
    return knn_accuracy(bank.rows, bank.labels, queries.rows, queries.labels, options_.knn_neighbours, kKnnTemperature);
  }

  const ChosenModel chosen_;
  const spec::Dino options_;
  const spec::Dinov2 backbone_;
  std::shared_ptr<const BatchSource> bank_;
  std::shared_ptr<SelfDistilled> student_, teacher_;
  Parts* parts_ = nullptr;
  at::Tensor dino_centre_, ibot_centre_;
  double temperature_ = 1;
  std::optional<double> pixel_knn_;
};

}  // namespace

std::unique_ptr<Recipe> make_dino(const RunConfig& config) {
  return std::make_unique<Dino>(config);
}

}  // namespace worker
