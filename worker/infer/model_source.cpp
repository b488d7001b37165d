#include "worker/infer/model_source.h"

#include <algorithm>
#include <stdexcept>
#include <string_view>

#include "base/checksum.h"
#include "base/durable_file.h"
#include "base/numbers.h"
#include "base/usage_error.h"
#include "spec/limits.h"
#include "spec/recipes.h"
#include "worker/files/model_tensors.h"
#include "worker/models/config_json.h"

namespace infer {
namespace {

namespace fs = std::filesystem;
using base::UsageError;
using fsdp::Json;
using worker::given;

/// A member that is a text; empty: there is none.
std::string text_of(const Json& object, std::string_view name) {
  const Json* member = given(object, name);
  return member != nullptr && member->is_string() ? member->as_string() : std::string();
}

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

/// Describes a model of transformers by its files. Throws std::invalid_argument that names a file and a member, or the
/// families that there are.
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
  const Json* model = manifest.contains("parts") ? given(manifest, {"parts", part}) : &manifest;
  const Json* shape = model == nullptr ? nullptr : given(*model, {"tensors", family.token_embedding, "shape"});
  if (shape == nullptr || !shape->is_array() || shape->size() != 2) return std::nullopt;
  return shape->as_array()[0].as_int();
}

Described described_by_extra(const Json& extra, const fs::path& path, const fs::path& run_file) {
  const Json* config = given(extra, {"model", "config"});
  const Json* run = given(extra, "run");
  Described out;
  if (config != nullptr) {
    const Json* generation = given(extra, {"model", worker::kGenerationOfExtra});
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

/// Describes a checkpoint by its manifest's extra.model, or else extra.run, or else by `run_file`, or by a run file
/// that lies where musterd writes it. A vocabulary that these leave open is that of the checkpoint's embedding. Throws
/// base::UsageError, and what the functions above throw.
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

constexpr const char* kManifest = "manifest.json";
constexpr std::string_view kStep = "step-";

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

/// The folders of checkpoints in a folder, whole or not.
bool has_steps(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().filename().native().starts_with(kStep)) return true;
  return false;
}

std::string steps_text(const fsdp::CheckpointList& list) {
  constexpr std::size_t kMostShown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(list.valid.size(), kMostShown); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(list.valid[i].step);
  return text + (list.valid.size() > kMostShown ? ", .." : "");
}

fsdp::CheckpointList checkpoints_of(const fs::path& folder) {
  fsdp::CheckpointList list = fsdp::list_checkpoints(folder);
  if (!list.valid.empty()) return list;
  std::string why;
  for (const auto& reason : list.ignored) why += (why.empty() ? "" : "; ") + reason;
  for (const auto& newer : list.too_new) why += (why.empty() ? "" : "; ") + newer.problem;
  throw UsageError(folder.native() + " has no whole checkpoint (" + (why.empty() ? "it has none at all" : why) +
                   "); give another folder");
}

const fsdp::CheckpointInfo& of_step(const fsdp::CheckpointList& list, std::int64_t step, const fs::path& folder,
                                    const std::string& what) {
  for (const auto& one : list.valid)
    if (one.step == step) return one;
  throw UsageError(what + ": " + folder.native() + " has no whole checkpoint of that step; it has " + steps_text(list));
}

/// The newest checkpoint that this program can read must not stand for a newer one.
void refuse_newer(const fsdp::CheckpointList& list, const std::string& remedy) {
  try {
    list.refuse_newer_than(list.valid.front().step);
  } catch (const fsdp::CheckpointTooNew& error) {
    throw UsageError(error.what() + ("; or " + remedy));
  }
}

fsdp::CheckpointInfo chosen(const fs::path& folder, const Options& options) {
  const auto list = checkpoints_of(folder);
  if (options.step) return of_step(list, *options.step, folder, "--step " + std::to_string(*options.step));
  refuse_newer(list, "give an older one by --step");
  if (!options.best) return list.valid.front();
  const Json* step = given(list.valid.front().manifest, {"extra", "best", "step"});
  if (step == nullptr || !step->is_int()) {
    throw UsageError("--best: the newest checkpoint in " + folder.native() +
                     " knows of no best one; leave --best out, or train with checkpoint.best");
  }
  return of_step(list, step->as_int(), folder, "--best is step " + std::to_string(step->as_int()));
}

/// The checkpoint that this folder itself is.
fsdp::CheckpointInfo at_path(const fs::path& folder, const Options& options) {
  if (options.step || options.best)
    throw UsageError(folder.native() + " is one checkpoint; leave --step and --best out, or give the folder above it");
  const fs::path plain = fs::absolute(folder / "").lexically_normal().parent_path();
  const auto list = checkpoints_of(plain.parent_path());
  for (const auto& one : list.valid)
    if (one.path.filename() == plain.filename()) return one;
  for (const auto& reason : list.ignored)
    if (reason.starts_with(plain.filename().native() + ":")) throw UsageError(plain.parent_path() / reason);
  for (const auto& newer : list.too_new)
    if (newer.problem.starts_with(plain.native() + " ")) throw UsageError(newer.problem);
  throw UsageError(plain.native() + " is no checkpoint: its name is not step-N; give it the name that it had");
}

std::shared_ptr<const data::tokenizers::Tokenizer> opened(const std::string& path) {
  try {
    return data::tokenizers::open_tokenizer(path);
  } catch (const std::runtime_error& error) {
    throw UsageError(error.what());
  }
}

/// The tokenizer that a checkpoint names: {"kind", "sha256", "folder"}.
std::shared_ptr<const data::tokenizers::Tokenizer> of_extra(const Json& saved, const fs::path& checkpoints) {
  const Json *kind = given(saved, "kind"), *folder = given(saved, "folder"), *sum = given(saved, "sha256");
  const bool is_bytes = kind != nullptr && *kind == Json("bytes");
  if (!is_bytes && (folder == nullptr || !folder->is_string())) return nullptr;
  auto tokenizer = opened(is_bytes ? "bytes" : (checkpoints / folder->as_string()).native());
  if (sum != nullptr && !(*sum == Json(base::hex(tokenizer->sha256())))) {
    throw UsageError("the tokenizer in " + (checkpoints / folder->as_string()).native() +
                     " is not the one that the checkpoint was trained with (sha256 " + sum->dump() + ", not " +
                     base::hex(tokenizer->sha256()) + "); give the right one by --tokenizer");
  }
  return tokenizer;
}

std::shared_ptr<const data::tokenizers::Tokenizer> tokenizer_of(const Options& options, const Source& source) {
  if (!options.tokenizer.empty()) return opened(options.tokenizer);
  if (source.checkpoint) {
    if (const Json* saved = given(source.checkpoint->manifest, {"extra", "tokenizer"}))
      if (auto found = of_extra(*saved, source.folder.parent_path())) return found;
    if (!source.data_tokenizer.empty()) return opened(source.data_tokenizer);
  } else if (!data::format::tokenizer_files(source.folder).empty()) {
    return opened(source.folder.native());
  }
  if (!source.pretrained.empty() && !data::format::tokenizer_files(source.pretrained).empty())
    return opened(source.pretrained);
  auto bytes = data::tokenizers::byte_tokenizer();
  if (source.whole("vocab_size") <= bytes->vocabulary()) return bytes;
  throw UsageError(
      source.folder.native() + " has no tokenizer, and its model has " + std::to_string(source.whole("vocab_size")) +
      " tokens; give the folder of a tokenizer by --tokenizer, or --tokenizer bytes for a model that was trained on "
      "bytes");
}

/// A model may have more tokens than its tokenizer, because vocabularies are padded, but not fewer.
void check_vocabulary(const Source& source) {
  const spec::Table* only = &source.family->table;
  if (spec::find_key({&only, 1}, "model.vocab_size") == nullptr) return;
  const auto has = source.whole("vocab_size"), wants = source.tokenizer->vocabulary();
  if (wants > has) {
    throw UsageError("the tokenizer has " + std::to_string(wants) + " tokens and the model " + std::to_string(has) +
                     "; give the model's own by --tokenizer");
  }
}

/// The adapters in a checkpoint; nullopt: it is of a whole model.
std::optional<AdapterSource> adapters_of(const fsdp::CheckpointInfo& checkpoint) {
  const Json* saved = given(checkpoint.manifest, {"extra", worker::kAdaptersOfExtra});
  if (saved == nullptr) return std::nullopt;
  const std::string place = (checkpoint.path / kManifest).native();
  const Json* base = given(checkpoint.manifest, {"extra", "pretrained"});
  AdapterSource out;
  out.shape = worker::read_adapters(*saved, place);
  if (base != nullptr) out.base = text_of(*base, "folder");
  if (base != nullptr) out.fingerprint = text_of(*base, "fingerprint");
  if (out.base.empty()) throw UsageError(place + ": does not name the model that the adapters belong to");
  if (!is_file(out.base / worker::kModelConfigFile)) {
    throw UsageError(place + ": its adapters belong to the model in " + out.base.native() +
                     ", and there is none now; bring that folder back, or use an export with the adapters merged");
  }
  return out;
}

/// The adapters of PEFT in a folder.
AdapterSource adapters_in(const fs::path& folder) {
  const fs::path config = folder / worker::kAdapterConfigFile;
  const Json json = read_json_object(config);
  AdapterSource out;
  out.shape = worker::read_adapters(json, config.native());
  out.base = text_of(json, "base_model_name_or_path");
  out.file = folder / (std::string(worker::kAdapterStem) + ".safetensors");
  if (!is_file(out.base / worker::kModelConfigFile)) {
    throw UsageError(config.native() + ": base_model_name_or_path is \"" + out.base.native() +
                     "\", and there is no model in a folder of that name; write the folder of the model there");
  }
  return out;
}

/// The folder of a model of Hugging Face that the source is or belongs to, or else that of the checkpoint.
const fs::path& model_files(const Source& source) {
  return source.adapters ? source.adapters->base : source.folder;
}

/// How texts of the model end; null: its files do not say it. A checkpoint of a whole model holds the file itself.
Json generation_of(const Source& source) {
  if (source.checkpoint && !source.adapters) {
    const Json* noted = given(source.checkpoint->manifest, {"extra", "model", worker::kGenerationOfExtra});
    return noted == nullptr ? Json() : *noted;
  }
  const fs::path file = model_files(source) / worker::kGenerationConfigFile;
  return is_file(file) ? read_json_object(file) : Json();
}

worker::ModelFiles files_of(const fs::path& folder) {
  const fs::path generation = folder / worker::kGenerationConfigFile;
  return {.config = read_json_object(folder / worker::kModelConfigFile),
          .generation = is_file(generation) ? read_json_object(generation) : Json(),
          .tensors = worker::tensor_names(folder)};
}

}  // namespace

Described described_by_run(const Json& run) {
  const Json* model = given(run, "model");
  const std::string recipe = text_of(run, "recipe");
  if (model == nullptr) return described_by_model(Json::Object(), recipe);
  if (!model->is_object()) throw std::invalid_argument("model = " + model->dump() + ": want an object");
  Described out = described_by_model(*model, recipe);
  if (const Json* data = given(run, "data")) out.data_tokenizer = text_of(*data, "tokenizer");
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

std::string Source::name() const {
  const std::string of(family->name);
  if (!checkpoint) return of + " of " + folder.native();
  return of + ", step " + std::to_string(checkpoint->step) + " of " + folder.parent_path().native();
}

std::string Source::architecture() const {
  const Json* names = given(config, "architectures");
  const bool named = names != nullptr && names->is_array() && names->size() > 0 && names->as_array()[0].is_string();
  return named ? names->as_array()[0].as_string() : std::string();
}

Source open_source(const Options& options) {
  const fs::path& folder = options.model;
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw UsageError(folder.native() +
                     " is no folder; give a model of Hugging Face, an export, or a folder of checkpoints");
  }
  Source source;
  Described& described = source;
  try {
    const bool is_peft = is_file(folder / worker::kAdapterConfigFile);
    if (is_peft || is_file(folder / worker::kModelConfigFile)) {
      if (options.step || options.best)
        throw UsageError(folder.native() + " is no folder of checkpoints; leave --step and --best out");
      source.folder = folder;
      if (is_peft) source.adapters = adapters_in(folder);
      described = described_by_files(files_of(model_files(source)));
      if (is_peft) described.pretrained = source.adapters->base.native();
    } else if (is_file(folder / kManifest) || has_steps(folder)) {
      source.checkpoint = is_file(folder / kManifest) ? at_path(folder, options) : chosen(folder, options);
      source.folder = source.checkpoint->path;
      source.adapters = adapters_of(*source.checkpoint);
      described = described_by_checkpoint(*source.checkpoint, options.part, options.run_file);
    } else {
      throw UsageError(folder.native() +
                       " has neither a config.json nor a checkpoint step-N; give a model of Hugging "
                       "Face, an export, or a folder of checkpoints");
    }
    source.generation = generation_of(source);
  } catch (const std::invalid_argument& refused) {
    throw UsageError(folder.native() + ": " + refused.what());
  } catch (const fsdp::JsonError& wrong) {
    throw UsageError(folder.native() + ": " + wrong.what());
  } catch (const fsdp::CheckpointError& wrong) {
    throw UsageError(wrong.what());
  }
  source.tokenizer = tokenizer_of(options, source);
  check_vocabulary(source);
  return source;
}

std::vector<std::int64_t> ends_of(const Source& source) {
  for (const Json* config : {&source.generation, &source.config}) {
    const Json* eos = given(*config, "eos_token_id");
    if (eos == nullptr) continue;
    std::vector<std::int64_t> ends;
    for (const Json& one : eos->is_array() ? eos->as_array() : Json::Array{*eos})
      if (one.is_int()) ends.push_back(one.as_int());
    return ends;
  }
  const auto own = source.tokenizer->special().eos;
  return own ? std::vector{*own} : std::vector<std::int64_t>();
}

}  // namespace infer
