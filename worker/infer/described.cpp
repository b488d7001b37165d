#include "worker/infer/described.h"

#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/durable_file.h"
#include "base/numbers.h"
#include "base/usage_error.h"
#include "spec/limits.h"
#include "spec/recipes.h"
#include "worker/models/config_json.h"

namespace infer {
namespace {

namespace fs = std::filesystem;
using base::UsageError;
using fsdp::Json;
using worker::given;

constexpr const char* kRunFile = "run.json";

/// The values of a table's rows out of an object that has them by the last part of their names. The rest gets defaults.
spec::Values values_by_leaf(const spec::Table& table, const Json& model) {
  spec::Values values;
  for (const auto& key : table.keys) {
    const Json* member = given(model, key.name.substr(key.name.find('.') + 1));
    if (member == nullptr || key.kind == spec::Kind::kPath) continue;
    values.set(key.name, worker::value_of_member(key, *member, key.name));
  }
  const spec::Table* only = &table;
  spec::fill_defaults(values, {&only, 1}, /*ranks=*/1);
  return values;
}

/// `recipe` may be empty: the usual one. A model that names no family has the recipe's first one.
Described described_by_model(const Json& model, const std::string& recipe) {
  const std::string family = text_of(model, "family");
  const std::string_view kind = recipe.empty() ? spec::recipe_key().standard : std::string_view(recipe);
  const std::string_view usual = spec::first_family(kind);
  if (family.empty() && usual.empty()) {
    throw std::invalid_argument("recipe = \"" + recipe + "\": there is no such recipe; repair it, or add model.family");
  }
  Described out;
  out.family = &worker::family(family.empty() ? usual : std::string_view(family));
  out.values = values_by_leaf(out.family->table, model);
  out.pretrained = text_of(model, "pretrained");
  return out;
}

/// Members "model.hidden_size" as the object {"hidden_size": ..}.
Json nested_model(const Json& by_key) {
  static constexpr std::string_view kModel = "model.";
  Json model = Json::Object();
  for (const auto& [name, value] : by_key.as_object())
    if (name.starts_with(kModel)) model[name.substr(kModel.size())] = value;
  return model;
}

/// The run file that musterd has written for the newest attempt, or one beside the checkpoints.
std::optional<fs::path> run_file_near(const fs::path& checkpoints) {
  std::error_code error;
  if (fs::is_regular_file(checkpoints / kRunFile, error)) return checkpoints / kRunFile;
  static constexpr std::string_view kAttempt = "attempt-";
  std::optional<fs::path> newest;
  std::int64_t attempt = 0;
  for (fs::directory_iterator at(fs::absolute(checkpoints).lexically_normal().parent_path(), error), end;
       !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    if (!name.starts_with(kAttempt)) continue;
    const auto number = base::whole_number<std::int64_t>(std::string_view(name).substr(kAttempt.size()));
    if (!number || *number <= attempt || !fs::is_regular_file(at->path() / kRunFile, error)) continue;
    attempt = *number;
    newest = at->path() / kRunFile;
  }
  return newest;
}

/// Rows of the table of token embeddings in a checkpoint.
std::optional<std::int64_t> saved_vocabulary(const Json& manifest, const std::string& part,
                                             const worker::Family& family) {
  const Json* parts = manifest.find("parts");
  const Json* model = parts == nullptr ? &manifest : parts->find(part);
  const Json* tensors = model == nullptr ? nullptr : model->find("tensors");
  const Json* table = tensors == nullptr ? nullptr : tensors->find(family.token_embedding);
  const Json* shape = table == nullptr ? nullptr : table->find("shape");
  if (shape == nullptr || !shape->is_array() || shape->size() != 2) return std::nullopt;
  return shape->as_array()[0].as_int();
}

Described described_by_extra(const Json& extra, const fs::path& path, const fs::path& run_file) {
  const Json* model = given(extra, "model");
  const Json* config = model == nullptr ? nullptr : given(*model, "config");
  const Json* run = given(extra, "run");
  Described out;
  if (config != nullptr) {
    const Json* generation = given(*model, worker::kGenerationOfExtra);
    out = described_by_files({.config = *config, .generation = generation == nullptr ? Json() : *generation});
  } else if (run != nullptr && run->is_object()) {
    out = described_by_model(nested_model(*run), text_of(*run, spec::recipe_key().name));
  } else {
    const auto file = run_file.empty() ? run_file_near(path.parent_path()) : std::optional(run_file);
    if (!file) {
      throw UsageError(path.native() +
                       " does not say which model it is of, and there is no run.json beside it; give the training's "
                       "run file by --run-file, or the number of its job to muster");
    }
    try {
      out = described_by_run(read_json_object(*file));
    } catch (const std::invalid_argument& error) {
      throw UsageError(file->native() + ": " + error.what());
    }
  }
  if (run != nullptr && run->is_object()) {
    if (out.pretrained.empty()) out.pretrained = text_of(*run, "model.pretrained");
    out.data_tokenizer = text_of(*run, "data.tokenizer");
  }
  return out;
}

}  // namespace

std::string text_of(const Json& object, std::string_view name) {
  const Json* member = given(object, name);
  return member != nullptr && member->is_string() ? member->as_string() : std::string();
}

Described described_by_files(const worker::ModelFiles& files) {
  const std::string type = text_of(files.config, "model_type");
  if (type.empty()) {
    throw std::invalid_argument(std::string(worker::kModelConfigFile) +
                                " has no model_type; give a folder that save_pretrained() of transformers has written");
  }
  Described out;
  out.family = &worker::family_of_type(type);
  out.values = worker::read_model(*out.family, files);
  out.config = files.config;
  return out;
}

Described described_by_run(const Json& run) {
  const Json* model = given(run, "model");
  const std::string recipe = text_of(run, "recipe");
  if (model == nullptr) return described_by_model(Json::Object(), recipe);
  if (!model->is_object()) throw std::invalid_argument("model = " + model->dump() + ": want an object");
  Described out = described_by_model(*model, recipe);
  if (const Json* data = given(run, "data")) out.data_tokenizer = text_of(*data, "tokenizer");
  return out;
}

Described described_by_checkpoint(const fsdp::CheckpointInfo& checkpoint, const std::string& part,
                                  const fs::path& run_file) {
  const Json* extra = checkpoint.manifest.find("extra");
  Described out = described_by_extra(extra == nullptr ? Json() : *extra, checkpoint.path, run_file);
  const std::string row = "model.vocab_size";
  const spec::Table* only = &out.family->table;
  if (spec::find_key({&only, 1}, row) != nullptr && out.values.whole(row) == 0)
    out.values.set(row, saved_vocabulary(checkpoint.manifest, part, *out.family)
                            .value_or(static_cast<std::int64_t>(spec::kByteVocabulary)));
  return out;
}

Json read_json_object(const fs::path& file) {
  try {
    Json json = Json::parse(base::read_whole_file(file, worker::kMostConfigBytes));
    json.as_object();
    return json;
  } catch (const fsdp::JsonError& error) {
    throw UsageError(file.native() + ": " + error.what() + "; repair it");
  } catch (const std::runtime_error& error) {
    throw UsageError(std::string(error.what()) + "; repair it");
  }
}

}  // namespace infer
