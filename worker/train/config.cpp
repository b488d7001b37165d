#include "train/config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "data/token_file.h"
#include "fsdp/json.h"
#include "rank/errors.h"

namespace worker {
namespace {

using fsdp::Json;

constexpr std::int64_t kMostWhole = std::int64_t{1} << 53;
constexpr std::size_t kMostFileBytes = 1 << 20;

[[noreturn]] void refuse(const std::string& key, const std::string& value, const std::string& remedy) {
  throw UsageError(key + " = " + value + ": " + remedy);
}

/// Letters to add, drop or change to get from a to b.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, change}));
    }
  }
  return row[b.size()];
}

/// One object of the file. Every key is asked for once; `finish` refuses those that nobody asked for.
class Table {
 public:
  Table(const Json* object, std::string name) : object_(object), name_(std::move(name)) {
    if (object_ != nullptr && object_->is_null()) object_ = nullptr;
    if (object_ != nullptr && !object_->is_object()) refuse(name_, object_->dump(), "want an object with named values");
  }

  Table table(const char* key) { return {take(key), key}; }

  void whole(const char* key, std::int64_t& out, std::int64_t low, std::int64_t high = kMostWhole) {
    const Json* value = take(key);
    if (value == nullptr) return;
    const auto number = as_whole(*value);
    if (!number) refuse(path(key), value->dump(), "want a whole number");
    if (*number < low || *number > high) {
      refuse(path(key), value->dump(),
             high == kMostWhole ? "want a whole number of at least " + std::to_string(low)
                                : "want a whole number in " + std::to_string(low) + ".." + std::to_string(high));
    }
    out = *number;
  }

  /// `low` is allowed only if `closed`; `high` never is.
  void real(const char* key, double& out, double low, bool closed, double high = HUGE_VAL) {
    const Json* value = take(key);
    if (value == nullptr) return;
    if (!value->is_number()) refuse(path(key), value->dump(), "want a number");
    const double number = value->as_double();
    if (!(closed ? number >= low : number > low) || !(number < high)) {
      std::ostringstream range;
      range << "want a number " << (closed ? "of at least " : "above ") << low;
      if (high != HUGE_VAL) range << " and below " << high;
      refuse(path(key), value->dump(), range.str());
    }
    out = number;
  }

  void text(const char* key, std::string& out) {
    const Json* value = take(key);
    if (value == nullptr) return;
    if (!value->is_string()) refuse(path(key), value->dump(), "want a text in quotes");
    if (value->as_string().find('\0') != std::string::npos) refuse(path(key), value->dump(), "want a text without NUL");
    out = value->as_string();
  }

  void flag(const char* key, bool& out) {
    const Json* value = take(key);
    if (value == nullptr) return;
    if (!value->is_bool()) refuse(path(key), value->dump(), "want true or false");
    out = value->as_bool();
  }

  template <class Choice>
  void choice(const char* key, Choice& out, const std::vector<std::pair<std::string, Choice>>& choices) {
    const Json* value = take(key);
    if (value == nullptr) return;
    std::string list;
    for (const auto& [name, meaning] : choices) {
      if (value->is_string() && value->as_string() == name) {
        out = meaning;
        return;
      }
      list += (list.empty() ? "\"" : ", \"") + name + "\"";
    }
    refuse(path(key), value->dump(), "want one of " + list);
  }

  void finish() const {
    if (object_ == nullptr) return;
    for (const auto& [key, value] : object_->as_object()) {
      if (known_.count(key) != 0) continue;
      std::string nearest;
      for (const auto& name : known_) {
        if (nearest.empty() || distance(key, name) < distance(key, nearest)) nearest = name;
      }
      const bool near = distance(key, nearest) <= 1 + nearest.size() / 3;
      refuse(path(key), value.dump().substr(0, 80),
             "there is no such key" + (near ? "; did you mean \"" + nearest + "\"?" : std::string()));
    }
  }

  bool has(const char* key) const {
    const Json* value = object_ == nullptr ? nullptr : object_->find(key);
    return value != nullptr && !value->is_null();
  }

 private:
  static std::optional<std::int64_t> as_whole(const Json& value) {
    if (value.is_int()) return value.as_int();
    if (!value.is_string()) return std::nullopt;
    const auto& digits = value.as_string();
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
    return number;
  }

  const Json* take(const char* key) {
    known_.insert(key);
    return has(key) ? object_->find(key) : nullptr;
  }

  std::string path(std::string_view key) const {
    return name_.empty() ? std::string(key) : name_ + "." + std::string(key);
  }

  const Json* object_;
  std::string name_;
  std::set<std::string, std::less<>> known_;
};

void read_model(Table table, LlamaConfig& model) {
  std::string family = "llama";
  table.choice("family", family, {{"llama", "llama"}});
  constexpr std::int64_t kMost = 1 << 24;
  model.vocab_size = 0;
  model.num_key_value_heads = 0;
  table.whole("vocab_size", model.vocab_size, 0, kMost);
  table.whole("hidden_size", model.hidden_size, 1, kMost);
  table.whole("intermediate_size", model.intermediate_size, 1, kMost);
  table.whole("num_hidden_layers", model.num_hidden_layers, 1, 10'000);
  table.whole("num_attention_heads", model.num_attention_heads, 1, kMost);
  table.whole("num_key_value_heads", model.num_key_value_heads, 0, kMost);
  table.whole("max_position_embeddings", model.max_position_embeddings, 1, kMost);
  table.real("rope_theta", model.rope_theta, 0, false);
  table.real("rms_norm_eps", model.rms_norm_eps, 0, false, 1);
  table.flag("tie_word_embeddings", model.tie_word_embeddings);
  table.real("initializer_range", model.initializer_range, 0, false, 10);
  table.finish();

  if (model.vocab_size == 0) model.vocab_size = kByteVocabulary;
  if (model.num_key_value_heads == 0) model.num_key_value_heads = model.num_attention_heads;
  if (model.vocab_size < kByteVocabulary) {
    refuse("model.vocab_size", std::to_string(model.vocab_size),
           "byte tokens need at least " + std::to_string(kByteVocabulary) + "; leave it out to get just that");
  }
  try {
    model.check();
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

void read_data(Table table, DataConfig& data) {
  table.choice("source", data.source, {{"auto", "auto"}, {"man", "man"}, {"folder", "folder"}, {"fixture", "fixture"}});
  table.text("path", data.path);
  table.whole("sequence_length", data.sequence_length, 1, 1 << 24);
  table.real("validation_fraction", data.validation_fraction, 0, true, 1);
  const std::int64_t most = data.max_bytes;
  table.whole("max_bytes", data.max_bytes, 0, std::int64_t{1} << 40);
  table.text("cache_folder", data.cache_folder);
  table.finish();
  if (data.max_bytes == 0) data.max_bytes = most;
  if (data.source == "folder" && data.path.empty()) {
    refuse("data.path", "\"\"", "source \"folder\" needs the folder of text files");
  }
}

void read_train(Table table, StepConfig& train) {
  table.whole("steps", train.steps, 1);
  table.whole("batch_size", train.batch_size, 1, 1 << 24);
  table.whole("micro_batch_size", train.micro_batch_size, 0, 1 << 24);
  table.real("learning_rate", train.learning_rate, 0, false);
  train.min_learning_rate = train.learning_rate / 10;
  table.real("min_learning_rate", train.min_learning_rate, 0, true);
  table.whole("warmup_steps", train.warmup_steps, 0);
  table.choice(
      "schedule", train.schedule,
      {{"cosine", ScheduleKind::kCosine}, {"linear", ScheduleKind::kLinear}, {"constant", ScheduleKind::kConstant}});
  table.real("weight_decay", train.weight_decay, 0, true);
  table.real("beta1", train.beta1, 0, true, 1);
  table.real("beta2", train.beta2, 0, true, 1);
  table.real("epsilon", train.epsilon, 0, false, 1);
  table.real("clip_norm", train.clip_norm, 0, true);
  table.whole("seed", train.seed, 0);
  table.choice("precision", train.precision, {{"fp32", Precision::kFp32}, {"bf16", Precision::kBf16}});
  table.whole("validation_every_steps", train.validation_every_steps, 0);
  table.whole("validation_batches", train.validation_batches, 1, 1 << 24);
  table.whole("step_delay_ms", train.step_delay_ms, 0, 3'600'000);
  table.finish();
  if (train.min_learning_rate > train.learning_rate) {
    refuse("train.min_learning_rate", Json(train.min_learning_rate).dump(),
           "want at most learning_rate = " + Json(train.learning_rate).dump());
  }
  if (train.warmup_steps > train.steps) {
    refuse("train.warmup_steps", std::to_string(train.warmup_steps),
           "want at most steps = " + std::to_string(train.steps));
  }
}

void read_checkpoint(Table table, CheckpointConfig& checkpoint) {
  std::string folder;
  table.text("folder", folder);
  if (!folder.empty()) checkpoint.folder = folder;
  table.whole("every_steps", checkpoint.every_steps, 0);
  table.whole("keep", checkpoint.keep, 1, 1'000'000);
  table.finish();
}

void read_fsdp(Table table, FsdpConfig& fsdp) {
  table.flag("reshard_after_forward", fsdp.reshard_after_forward);
  table.flag("prefetch", fsdp.prefetch);
  table.finish();
}

}  // namespace

RunConfig parse_run_config(std::string_view json) {
  Json file;
  try {
    file = Json::parse(json);
  } catch (const fsdp::JsonError& error) {
    throw UsageError(std::string("the run file is no JSON: ") + error.what());
  }
  if (!file.is_object()) throw UsageError("the run file holds no JSON object");
  Table table(&file, "");
  RunConfig out;
  for (const char* key : {"format", "name"}) {
    if (!table.has(key)) throw UsageError(std::string(key) + " is missing from the run file");
  }
  std::int64_t format = 0;
  table.whole("format", format, 1, 1);
  table.text("name", out.name);
  table.text("recipe", out.recipe);
  Table model = table.table("model"), data = table.table("data"), train = table.table("train");
  Table checkpoint = table.table("checkpoint"), fsdp = table.table("fsdp");
  table.finish();
  read_model(std::move(model), out.model);
  read_data(std::move(data), out.data);
  read_train(std::move(train), out.train);
  read_checkpoint(std::move(checkpoint), out.checkpoint);
  read_fsdp(std::move(fsdp), out.fsdp);
  if (out.data.sequence_length > out.model.max_position_embeddings) {
    refuse("data.sequence_length", std::to_string(out.data.sequence_length),
           "want at most model.max_position_embeddings = " + std::to_string(out.model.max_position_embeddings));
  }
  out.canonical = file.dump();
  return out;
}

RunConfig read_run_config(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text(kMostFileBytes + 1, '\0');
  if (in) in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in.is_open() || in.bad()) {
    throw UsageError("cannot read the run file " + file.native() + "; give one with --run-file or MUSTER_RUN_FILE");
  }
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > kMostFileBytes) throw UsageError("the run file " + file.native() + " is larger than 1 MiB");
  try {
    return parse_run_config(text);
  } catch (const UsageError& error) {
    throw UsageError(file.native() + ": " + error.what());
  }
}

BatchSplit split_batch(const StepConfig& config, int world_size) {
  const std::int64_t unit = config.micro_batch_size == 0 ? world_size : config.micro_batch_size * world_size;
  if (config.batch_size % unit != 0) {
    const std::int64_t above = (config.batch_size / unit + 1) * unit, below = above - unit;
    refuse("train.batch_size", std::to_string(config.batch_size),
           "want a multiple of " + std::to_string(unit) + " (" +
               (config.micro_batch_size == 0 ? "" : std::to_string(config.micro_batch_size) + " a micro-batch x ") +
               std::to_string(world_size) + " ranks), such as " + (below > 0 ? std::to_string(below) + " or " : "") +
               std::to_string(above));
  }
  if (config.micro_batch_size == 0) return {config.batch_size / world_size, 1};
  return {config.micro_batch_size, config.batch_size / unit};
}

}  // namespace worker
