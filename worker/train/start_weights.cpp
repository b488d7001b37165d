#include "worker/train/start_weights.h"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include "base/durable_file.h"
#include "base/usage_error.h"
#include "data/format/dataset.h"
#include "fsdp/engine/initialize.h"
#include "fsdp/files/checkpoint.h"
#include "fsdp/files/tensor_files.h"
#include "spec/recipes.h"
#include "worker/files/model_tensors.h"
#include "worker/models/config_json.h"

namespace worker {
namespace {

using fsdp::Json;
namespace fs = std::filesystem;

[[noreturn]] void refuse_folder(const fs::path& folder, const std::string& why) {
  throw base::UsageError("model.pretrained = \"" + folder.native() + "\": " + why);
}

bool has_file(const fs::path& folder, const char* name) {
  std::error_code ignored;
  return fs::is_regular_file(folder / name, ignored);
}

Json read_object(const fs::path& folder, const char* name) {
  try {
    Json json = Json::parse(base::read_whole_file(folder / name, kMostConfigBytes));
    json.as_object();
    return json;
  } catch (const fsdp::JsonError& error) {
    refuse_folder(folder, std::string(name) + ": " + error.what());
  } catch (const std::runtime_error& error) {
    refuse_folder(folder, error.what());
  }
}

Json read_config(const fs::path& folder) {
  if (!has_file(folder, kModelConfigFile)) {
    refuse_folder(folder,
                  std::string("cannot read ") + kModelConfigFile +
                      " there; give a folder that save_pretrained() of transformers has written, on a file system "
                      "that all ranks see");
  }
  return read_object(folder, kModelConfigFile);
}

/// The note that note_model() has left in the newest checkpoint of this folder; null: none.
Json saved_model(const fs::path& checkpoints) {
  try {
    const auto newest = fsdp::latest_valid(checkpoints);
    const Json* model = newest ? newest->manifest.at("extra").find("model") : nullptr;
    if (model == nullptr) return {};
    model->at("config");
    return *model;
  } catch (const std::runtime_error&) {
    return {};  // the resume tells what is wrong with the folder
  }
}

void read_files(const RunConfig& config, ChosenModel& model) {
  const Json saved = saved_model(config.checkpoint.folder);
  model.files.config = saved.is_null() ? read_config(model.pretrained) : saved.at("config");
  if (saved.is_null()) model.files.tensors = tensor_names(model.pretrained);
  const Json* generation = saved.is_null() ? nullptr : given(saved, kGenerationOfExtra);
  if (generation != nullptr) {
    model.files.generation = *generation;
  } else if (has_file(model.pretrained, kGenerationConfigFile)) {
    model.files.generation = read_object(model.pretrained, kGenerationConfigFile);
  }
}

Json config_of(const ChosenModel& model, std::string_view architecture, at::ScalarType dtype) {
  Json config = model.files.config;
  model.family->write(model.values, architecture, config);
  write_dtype(config, dtype);
  return config;
}

/// Rows on which no weight depends.
bool may_differ(std::string_view key) {
  return key == "model.max_position_embeddings" || key == "model.initializer_range" ||
         key.find("dropout") != std::string_view::npos || key.find("drop_path") != std::string_view::npos;
}

std::string shown(const spec::Key& key, const spec::Value& value) {
  const std::string text = spec::print(key, value);
  return std::holds_alternative<std::string>(value) ? "\"" + text + "\"" : text;
}

/// Fills absent rows from config.json. Every row that is written otherwise is named.
void add_config(ChosenModel& model) {
  spec::Values there;
  try {
    there = read_model(*model.family, model.files);
  } catch (const std::invalid_argument& error) {
    refuse_folder(model.pretrained, error.what());
  }
  std::string differences;
  for (const auto& key : model.family->table.keys) {
    const auto *of_file = there.find(key.name), *written = model.values.find(key.name);
    if (key.kind == spec::Kind::kPath || of_file == nullptr) continue;
    if (written == nullptr) {
      model.values.set(key.name, *of_file);
    } else if (*written != *of_file && !may_differ(key.name)) {
      differences += (differences.empty() ? "" : ", ") + std::string(key.name) + " = " + shown(key, *of_file) +
                     ", not " + shown(key, *written);
    }
  }
  if (differences.empty()) return;
  refuse_folder(model.pretrained, std::string(kModelConfigFile) + " there has " + differences +
                                      "; leave the keys of [model] that config.json gives out of the job file");
}

/// Rows of the family were not known when the run file was checked, nor were defaults that follow from them. What could
/// be checked then is not looked at again: a plan, for one, has changed the number of steps since.
void check_rows(const RunConfig& config, ChosenModel& model) {
  const auto tables = spec::tables_of(config.recipe, config.family);
  spec::fill_defaults(model.values, tables, /*ranks=*/0);
  const auto before = spec::conflicts_of(config.values, tables, /*ranks=*/0);
  for (const auto& conflict : spec::conflicts_of(model.values, tables, /*ranks=*/0)) {
    const auto is_this = [&](const spec::Conflict& other) {
      return other.key == conflict.key && other.want == conflict.want;
    };
    if (std::ranges::any_of(before, is_this)) continue;
    throw base::UsageError(conflict.key + ": " + conflict.want +
                           (conflict.remedy.empty() ? "" : "; " + conflict.remedy));
  }
}

std::string list_of(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) text += (i > 0 ? ", " : "") + names[i];
  return names.size() > kShown ? text + " and " + std::to_string(names.size() - kShown) + " more" : text;
}

/// Why prepared data tell nothing here.
std::string why_unread(const fs::path& folder) {
  try {
    data::format::read_description(folder);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return (folder / data::format::kDescriptionName).native() + " tells no vocabulary";
}

}  // namespace

ChosenModel choose_model(const RunConfig& config, std::int64_t vocabulary) {
  ChosenModel model;
  try {
    model.family = &family(config.family);
  } catch (const std::invalid_argument& error) {
    throw base::UsageError(std::string("model.family: ") + error.what());
  }
  model.values = config.values;
  model.pretrained = config.values.text("model.pretrained");
  if (!model.pretrained.empty()) {
    read_files(config, model);
    add_config(model);
  }
  constexpr std::string_view kVocabulary = "model.vocab_size";
  const auto has_vocabulary =
      std::ranges::find(model.family->table.keys, kVocabulary, &spec::Key::name) != model.family->table.keys.end();
  if (has_vocabulary && !model.values.has(kVocabulary) && vocabulary == 0 && config.data_options.prepared.empty()) {
    throw base::UsageError("model.vocab_size is missing: it is known once the text is cut by data.tokenizer = \"" +
                           config.data_options.tokenizer + "\"; give the number of that tokenizer's ids");
  }
  if (has_vocabulary && !model.values.has(kVocabulary) && vocabulary == 0) {
    throw base::UsageError("data.prepared = \"" + config.data_options.prepared +
                           "\": " + why_unread(config.data_options.prepared) +
                           ". data.json would tell model.vocab_size; to plan the run without the data, give that key");
  }
  if (has_vocabulary && !model.values.has(kVocabulary)) model.values.set(kVocabulary, vocabulary);
  if (has_vocabulary && model.values.whole(kVocabulary) < vocabulary) {
    throw base::UsageError("model.vocab_size = " + std::to_string(model.values.whole(kVocabulary)) +
                           ": the data have " + std::to_string(vocabulary) +
                           " tokens; prepare the data with the model's own tokenizer" +
                           (model.pretrained.empty() ? ", or leave model.vocab_size out" : ""));
  }
  if (!model.pretrained.empty()) check_rows(config, model);
  return model;
}

bool finds_model_config(const RunConfig& config) {
  std::error_code error;
  return fs::exists(fs::path(config.values.text(spec::kPretrained)) / kModelConfigFile, error) ||
         !saved_model(config.checkpoint.folder).is_null();
}

Part part_of(const ChosenModel& model, std::shared_ptr<torch::nn::Module> module) {
  Part part;
  part.module = std::move(module);
  part.layers_above = [&model](const std::string& name) { return model.family->layers_above(model.values, name); };
  return part;
}

std::string start_weights(const ChosenModel& model, std::int64_t seed, fsdp::ShardedModel& sharded,
                          const StartOptions& options) {
  const std::size_t prefix = options.prefix.size();
  const auto is_own = [&](const std::string& name) { return options.is_own && options.is_own(name); };
  const auto draw = [&](const std::string& name, const at::Tensor& values, at::Generator& random) {
    if (is_own(name)) return options.draw_own(name, values, random);
    model.family->draw(model.values, name.substr(prefix), values, random);
  };
  if (model.pretrained.empty()) {
    fsdp::initialize(sharded, static_cast<std::uint64_t>(seed), draw);
    return "seed " + std::to_string(seed);
  }
  const FileNames& names = model.family->names;
  std::set<std::string, std::less<>> parameters;
  for (const auto& unit : sharded.units()) {
    for (const auto& segment : unit->segments()) {
      for (const auto& parameter : segment->layout().parameters()) {
        parameters.insert(parameter.name);
        parameters.insert(parameter.aliases.begin(), parameter.aliases.end());
      }
    }
  }
  const auto is_redrawn = [&](const std::string& name) { return options.is_redrawn && options.is_redrawn(name); };
  try {
    const fsdp::TensorFiles files(model.pretrained);
    check_equal_tensors(names, model.values, files);
    fsdp::LoadNames load = load_names(
        names, model.values, files,
        [&](const std::string& name) { return parameters.contains(name) && !is_redrawn(name); }, options.prefix);
    load.parameter_of = [&is_redrawn, usual = load.parameter_of](const std::string& in_file) {
      std::string name = usual(in_file);
      return is_redrawn(name) ? "(drawn anew) " + name : name;
    };
    load.may_ignore = [&is_redrawn, usual = load.may_ignore](const std::string& in_file) {
      return is_redrawn(in_file) || usual(in_file);
    };
    load.may_lack = [&](const std::string& name) {
      return is_own(name) || is_redrawn(name) || names.may_lack(name.substr(prefix));
    };
    const auto lacked = fsdp::load_tensors(sharded, files, load);
    if (!lacked.empty()) {
      const std::set<std::string, std::less<>> drawn(lacked.begin(), lacked.end());
      fsdp::initialize(sharded, static_cast<std::uint64_t>(seed), draw,
                       [&](const std::string& name) { return drawn.contains(name); });
    }
    return std::to_string(files.file_count()) + (files.file_count() == 1 ? " file of " : " files of ") +
           model.pretrained.native() +
           (lacked.empty() ? "" : "; drawn with seed " + std::to_string(seed) + ": " + list_of(lacked));
  } catch (const fsdp::UnfitTensors& error) {
    refuse_folder(model.pretrained, error.what());
  }
}

void note_model(const ChosenModel& model, std::string_view architecture, Json& extra) {
  extra["model"]["family"] = model.family->name;
  extra["model"]["config"] = config_of(model, architecture, at::kFloat);
  if (!model.files.generation.is_null()) extra["model"][kGenerationOfExtra] = model.files.generation;
}

std::string config_text(const ChosenModel& model, std::string_view architecture, at::ScalarType dtype) {
  return config_of(model, architecture, dtype).dump(2) + "\n";
}

void describe_model(const ChosenModel& model, std::string_view architecture, fsdp::ExportOptions& options) {
  options.texts[kModelConfigFile] = config_text(model, architecture, *options.dtype);
  if (!model.files.generation.is_null()) options.texts[kGenerationConfigFile] = model.files.generation.dump(2) + "\n";
}

}  // namespace worker
