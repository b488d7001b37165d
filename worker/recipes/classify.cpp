#include "worker/recipes/classify.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "base/usage_error.h"
#include "fsdp/engine/initialize.h"
#include "spec/tables/bert_keys.h"
#include "spec/tables/text_data_keys.h"
#include "worker/batch/encoder_texts.h"
#include "worker/metrics/classification.h"
#include "worker/models/bert/bert_model.h"
#include "worker/models/config_json.h"
#include "worker/models/head_loss.h"
#include "worker/recipes/data_of_run.h"
#include "worker/recipes/registry.h"
#include "worker/train/evaluation.h"
#include "worker/train/settings.h"

namespace worker {
namespace {

constexpr const char* kHeadWeight = "classifier.weight";

ClassRows in_order_of(const std::vector<std::string>& labels) {
  ClassRows out{.labels = labels, .row_of = std::vector<std::int64_t>(labels.size())};
  std::iota(out.row_of.begin(), out.row_of.end(), 0);
  return out;
}

/// The names of the file's rows. transformers names a row LABEL_3 where nobody has named it, so that data whose labels
/// are numbers fit.
std::vector<std::string> names_of_rows(const ChosenModel& model) {
  try {
    return bert_labels(model.files.config);
  } catch (const std::invalid_argument& error) {
    throw base::UsageError("model.pretrained = \"" + model.pretrained.native() + "\": " + error.what());
  }
}

std::string plain_name(const std::string& name) {
  static constexpr std::string_view kUnnamed = "LABEL_";
  return name.starts_with(kUnnamed) ? name.substr(kUnnamed.size()) : name;
}

/// Empty where the names are not the same.
std::vector<std::int64_t> rows_by_name(const std::vector<std::string>& rows, const std::vector<std::string>& labels) {
  std::map<std::string, std::int64_t, std::less<>> row_of;
  for (const auto& name : rows) row_of.emplace(plain_name(name), static_cast<std::int64_t>(row_of.size()));
  std::vector<std::int64_t> out;
  if (row_of.size() != rows.size() || rows.size() != labels.size()) return out;
  for (const auto& label : labels) {
    const auto found = row_of.find(plain_name(label));
    if (found == row_of.end()) return {};
    out.push_back(found->second);
  }
  return out;
}

std::string list_of_labels(const std::vector<std::string>& labels) {
  constexpr std::size_t kMostShown = 6;
  std::string text;
  for (std::size_t i = 0; i < std::min(labels.size(), kMostShown); ++i)
    text += (i == 0 ? "\"" : ", \"") + labels[i] + "\"";
  return labels.size() > kMostShown ? text + " and " + std::to_string(labels.size() - kMostShown) + " more" : text;
}

[[noreturn]] void refuse_rows(const ChosenModel& model, const std::vector<std::string>& rows,
                              const std::vector<std::string>& labels) {
  throw base::UsageError(
      "model.pretrained = \"" + model.pretrained.native() + "\": its classifier has the labels " +
      list_of_labels(rows) + ", and the data have " + list_of_labels(labels) +
      "; set train.head = \"new\" to draw the classifier's last layer anew" +
      (rows.size() == labels.size() ? ", or \"by_number\" if its rows are in the order of the data's labels" : ""));
}

constexpr const char* kConfusion = "confusion";

class Classify : public FolderRecipe {
 public:
  explicit Classify(const RunConfig& config)
      : FolderRecipe(config, data::format::Kind::kLabelled),
        options_(spec::bind<spec::Classify>(spec::classify(), config.values)),
        length_(spec::bind<spec::Sequence>(spec::sequence(), config.values).sequence_length),
        chosen_(choose_model(config, folder_.vocabulary())),
        rows_(class_rows(chosen_, labels_of_data(), options_.head)) {}

  RunData open_data(const std::string&, const agent::rank::RankEnvironment& place) override {
    RunData out = folder_.open(place, chosen_.values.whole("model.vocab_size"));
    if (const auto conflict = spec::conflict_with_classes(options_, classes()))
      throw base::UsageError(conflict->key + " " + conflict->want + "; " + conflict->remedy);
    weights_ = options_.class_weights == "balanced"
                   ? balanced_weights(*folder_.data().train)
                   : spec::class_weight_numbers(options_.class_weights).value_or(std::vector<double>());
    const LabelledOptions options{.length = length_, .class_weights = weights_, .row_of = rows_.row_of};
    train_ = labelled_texts(folder_.data().train, options);
    if (folder_.data().validation) validation_ = labelled_texts(folder_.data().validation, options);
    return out;
  }

  Batch of_sizes(std::int64_t samples) const override {
    Batch batch;
    for (const char* name : {"input_ids", "token_type_ids"})
      batch.tensors[name] = at::empty({samples, length_}, at::kLong);
    batch.tensors["attention_mask"] = at::empty({samples, length_}, at::kBool);
    batch.tensors["labels"] = at::empty({samples}, at::kLong);
    batch.samples = samples;
    batch.tokens = samples * length_;
    batch.weight = static_cast<double>(samples);
    return batch;
  }

  std::vector<Part> parts() override {
    const fsdp::MetaDeviceGuard guard;
    model_ = std::make_shared<BertForSequenceClassification>(spec::bind<spec::Bert>(spec::bert(), chosen_.values),
                                                             classes());
    for (auto& item : model_->named_parameters()) {
      const bool of_encoder = item.key().starts_with("bert.") && !item.key().starts_with("bert.pooler.");
      if (options_.freeze_encoder && of_encoder) item.value().requires_grad_(false);
    }
    return {part_of(chosen_, model_)};
  }

  void attach(Parts& parts) override {
    if (weights_.empty()) return;
    const auto on_device = at::TensorOptions(at::kFloat).device(parts.mesh().device());
    class_weights_ = at::tensor(at::ArrayRef<double>(rows_.by_row(weights_)), at::kDouble).to(on_device);
  }

  std::string first_values(Parts& parts) override {
    StartOptions options;
    if (rows_.is_drawn) options.is_redrawn = [](const std::string& name) { return name.starts_with("classifier."); };
    return start_weights(chosen_, config_.train.seed, parts.trained(), options);
  }

  Losses loss(const Batch& batch) override {
    return {model_->loss(rows_of(batch), batch.at("labels"), class_weights_)};
  }
  std::string why_no_fixed_shapes() const override { return "the length of texts differs by batch"; }

  void evaluate(Evaluation& evaluation) override {
    Confusion own(static_cast<int>(classes()));
    evaluation.each([&](const Batch& batch, bool counts) {
      const at::Tensor logits = model_->forward(rows_of(batch));
      if (!counts) return;
      const double sum = class_loss(logits, batch.at("labels"), class_weights_).item<double>();
      evaluation.add("validation/loss", sum, batch.weight);
      const at::Tensor guesses = logits.argmax(-1).cpu(), labels = batch.at("labels").cpu();
      for (std::int64_t i = 0; i < batch.samples; ++i) {
        own.add(static_cast<int>(labels.const_data_ptr<std::int64_t>()[i]),
                static_cast<int>(guesses.const_data_ptr<std::int64_t>()[i]));
      }
    });
    evaluation.add(kConfusion, own.counts());
    const Confusion all(own.classes(), evaluation.agreed(kConfusion));
    evaluation.set("validation/accuracy", all.accuracy());
    evaluation.set("validation/macro_f1", all.macro_f1());
    if (evaluation.mesh().rank() == 0) say(all);
  }

  void save(fsdp::Json& extra) const override {
    note_model(chosen_, kBertClassifier, extra);
    folder_.note_tokenizer(extra);
    write_bert_labels(rows_.labels, extra["model"]["config"]);
  }

  fsdp::ShardedModel& exported(Parts& parts, fsdp::ExportOptions& options) override {
    auto config = fsdp::Json::parse(config_text(chosen_, kBertClassifier, *options.dtype));
    write_bert_labels(rows_.labels, config);
    options.texts[kModelConfigFile] = config.dump(2) + "\n";
    options.copies = folder_.tokenizer_files();
    return parts.trained();
  }

 private:
  /// None where the data cannot be read, as for a plan on another machine, and where they are of another kind, which
  /// open_data() tells.
  std::vector<std::string> labels_of_data() const {
    const auto* description = folder_.description();
    return description == nullptr ? std::vector<std::string>() : description->labels;
  }
  std::int64_t classes() const { return std::max<std::int64_t>(static_cast<std::int64_t>(rows_.labels.size()), 2); }

  static BertRows rows_of(const Batch& batch) {
    return {batch.at("input_ids"), batch.at("attention_mask"), batch.at("token_type_ids")};
  }

  void say(const Confusion& confusion) const {
    const RankLog log(0);
    std::istringstream lines(confusion.table(rows_.labels));
    for (std::string line; std::getline(lines, line);) log.say(line);
  }

  const spec::Classify options_;
  const std::int64_t length_;
  const ChosenModel chosen_;
  const ClassRows rows_;
  std::vector<double> weights_;  // by class; empty: all alike
  at::Tensor class_weights_;
  std::shared_ptr<BertForSequenceClassification> model_;
};

}  // namespace

std::vector<double> ClassRows::by_row(const std::vector<double>& by_label) const {
  std::vector<double> out(by_label.size());
  for (std::size_t label = 0; label < by_label.size(); ++label)
    out[static_cast<std::size_t>(row_of[label])] = by_label[label];
  return out;
}

ClassRows class_rows(const ChosenModel& model, const std::vector<std::string>& labels, spec::ClassHead head) {
  ClassRows out = in_order_of(labels);
  const bool is_known = model.files.tensors != nullptr;
  if (model.files.config.is_null() || (is_known && !model.files.has(kHeadWeight))) return out;
  out.is_drawn = is_known && head == spec::ClassHead::kNew;
  if (out.is_drawn) return out;
  const auto rows = names_of_rows(model);
  if (is_known && head == spec::ClassHead::kByNumber) {
    if (rows.size() != labels.size()) refuse_rows(model, rows, labels);
    return out;
  }
  const auto by_name = rows_by_name(rows, labels);
  if (by_name.empty()) {
    if (is_known) refuse_rows(model, rows, labels);
    return out;  // a plan without the files, or a checkpoint of other data, which the resume refuses
  }
  out.row_of = by_name;
  for (std::size_t label = 0; label < labels.size(); ++label)
    out.labels[static_cast<std::size_t>(by_name[label])] = labels[label];
  return out;
}

std::unique_ptr<Recipe> make_classify(const RunConfig& config) {
  return std::make_unique<Classify>(config);
}

}  // namespace worker
