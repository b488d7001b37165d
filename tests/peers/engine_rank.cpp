// Trains a model under the engine, on weights and batches that another program wrote, and writes what came of it.
//
// Usage: peers_engine_rank FOLDER OUT [--model small|FAMILY] [--world-size N] [--strategy NAME]
//   [--dtype fp32|bf16|mixed] [--rate R] [--optimizer NAME]
// FOLDER has the weights as safetensors, for a family also config.json, and batches.safetensors: ids and targets, int64
// [steps, sequences, positions]. t5 and bert also have a mask of the ids, and bert has types. A target of -100 does not
// count. A bert that classifies has labels, int64 [steps, sequences], in place of targets, and class_weights, fp32
// [classes]. Each rank takes an equal part of the sequences. The loss is the mean over the targets that count, of all
// ranks, or the mean weighted by class. mixed: bf16 for matrices and fp32 for the rest. OUT: losses and norms (of the
// gradients), fp64 [steps], and "weight/<name>" for each parameter after the last step.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/forked_ranks.h"
#include "fsdp/files/safetensors.h"
#include "fsdp/files/tensor_files.h"
#include "fsdp/optim/adafactor.h"
#include "fsdp/optim/grad_scaler.h"
#include "fsdp/optim/muon.h"
#include "fsdp/text/json.h"
#include "tests/fsdp/small_model.h"
#include "worker/models/bert/bert_model.h"
#include "worker/models/config_json.h"
#include "worker/models/family.h"
#include "worker/models/head_loss.h"
#include "worker/models/t5/t5_model.h"
#include "worker/train/strategy.h"

namespace {

struct Options {
  std::filesystem::path folder, out;
  std::map<std::string, std::string> values{{"--model", "small"}, {"--world-size", "1"}, {"--strategy", "full_shard"},
                                            {"--dtype", "fp32"},  {"--rate", "3e-4"},    {"--optimizer", "adamw"}};
  const std::string& of(const char* name) const { return values.at(name); }
  int world_size() const { return std::stoi(of("--world-size")); }
};

/// A rank's part of a step's batch, by the names in batches.safetensors. class_weights are whole.
using Batch = std::map<std::string, at::Tensor>;

/// The number of targets that count.
double count_of_targets(const Batch& batch) {
  return batch.at("targets").ne(-100).sum().item<double>();
}

/// A model, and how its units are made.
struct Trained {
  std::shared_ptr<torch::nn::Module> module;
  std::function<void(fsdp::ShardedModel&, const fsdp::ShardOptions&)> shard;
  std::function<at::Tensor(const Batch&)> loss;                   ///< the sum over targets that count
  std::function<double(const Batch&)> weight = count_of_targets;  ///< what the sum is divided by
  fsdp::LoadNames names = {};                                     ///< of the file's tensors
};

/// The root is needed first in backward, so it stays gathered.
fsdp::ShardOptions of_root(fsdp::ShardOptions options) {
  options.reshard_after_forward = false;
  return options;
}

/// The model of tests/fsdp/small_model.h: tied, frozen and unused parameters, and odd shapes.
Trained small_model() {
  const auto model = make_model();
  Trained made{model, {}, {}};
  made.shard = [model](fsdp::ShardedModel& sharded, const fsdp::ShardOptions& options) {
    for (const auto& block : model->blocks) block->wrap = wrapper(sharded.fully_shard(block, options));
    model->wrap = wrapper(sharded.fully_shard(model, of_root(options)));
  };
  made.loss = [model](const Batch& batch) {
    return model->wrap(batch.at("ids"), [&](const at::Tensor& in) {
      at::Tensor x = at::embedding(model->embedding, in);
      for (const auto& block : model->blocks) x = block->forward(x);
      const at::Tensor seen = normalise(x, model->norm).to(model->head.scalar_type());
      const at::Tensor logits = at::matmul(seen, model->head.t()).to(at::kFloat).flatten(0, 1);
      return at::cross_entropy_loss(logits, batch.at("targets").flatten(), {}, at::Reduction::Sum);
    });
  };
  return made;
}

/// The blocks and the root are units.
template <class Model>
Trained with_blocks(std::shared_ptr<Model> model) {
  Trained made{model, {}, {}};
  made.shard = [model](fsdp::ShardedModel& sharded, const fsdp::ShardOptions& options) {
    for (const auto& block : model->blocks()) block->wrapper = worker::wrapper_of(sharded.fully_shard(block, options));
    model->wrapper = worker::wrapper_of(sharded.fully_shard(model, of_root(options)));
  };
  return made;
}

worker::BertRows rows_of(const Batch& batch) {
  return {batch.at("ids"), batch.at("mask"), batch.at("types")};
}

/// The config names the class of the model, as transformers writes it.
Trained bert(const fsdp::Json& config, const spec::Bert& sizes) {
  if (config.at("architectures").as_array().front().as_string() == "BertForMaskedLM") {
    const auto model = std::make_shared<worker::BertForMaskedLm>(sizes);
    Trained made = with_blocks(model);
    made.loss = [model](const Batch& batch) { return model->loss(rows_of(batch), batch.at("targets")); };
    return made;
  }
  const auto labels = static_cast<std::int64_t>(worker::bert_labels(config).size());
  const auto model = std::make_shared<worker::BertForSequenceClassification>(sizes, labels);
  Trained made = with_blocks(model);
  made.loss = [model](const Batch& batch) {
    return model->loss(rows_of(batch), batch.at("labels"), batch.at("class_weights"));
  };
  made.weight = [](const Batch& batch) { return worker::class_weight(batch.at("labels"), batch.at("class_weights")); };
  return made;
}

Trained make_model_of(const worker::Family& family, const fsdp::Json& config, const spec::Values& values) {
  if (family.name == "bert") return bert(config, spec::bind<spec::Bert>(family.table, values));
  if (family.name == "t5") {
    const auto model = std::make_shared<worker::T5ForConditionalGeneration>(spec::bind<spec::T5>(family.table, values));
    Trained made = with_blocks(model);
    made.loss = [model](const Batch& batch) {
      return model->loss(batch.at("ids"), batch.at("mask"), batch.at("targets"));
    };
    return made;
  }
  const auto model = family.make_causal(values);
  Trained made = with_blocks(model);
  made.loss = [model](const Batch& batch) { return model->loss(batch.at("ids"), batch.at("targets")); };
  return made;
}

/// A model of worker/models, of the folder's sizes.
Trained of_family(const worker::Family& family, const std::filesystem::path& folder) {
  std::ifstream file(folder / worker::kModelConfigFile);
  std::ostringstream text;
  text << file.rdbuf();
  const auto config = fsdp::Json::parse(text.str());
  const auto values = family.read(config);
  Trained made = make_model_of(family, config, values);
  const auto parameters = made.module->named_parameters();
  made.names.parameter_of = [&names = family.names, parameters](const std::string& in_file) {
    return worker::parameter_in(names, in_file, [&](const std::string& name) { return parameters.contains(name); });
  };
  made.names.may_ignore = [&names = family.names, values](const std::string& in_file) {
    return names.may_ignore(in_file, values);
  };
  return made;
}

/// Batches of all steps and ranks.
class Batches {
 public:
  explicit Batches(const std::filesystem::path& file) : file_(file) {}

  std::int64_t steps() const { return file_.tensor("ids").size(0); }

  /// A part of the sequences of a step.
  Batch of(std::int64_t step, int part, int parts) const {
    Batch out;
    for (const auto& [name, entry] : file_.entries()) {
      const at::Tensor all = file_.tensor(name);
      out[name] = name == "class_weights" ? all.clone() : part_of(all[step], part, parts).clone();
    }
    return out;
  }

 private:
  const fsdp::SafetensorsReader file_;
};

fsdp::ShardOptions shard_options(const Options& o) {
  const std::string& dtype = o.of("--dtype");
  const std::string& strategy = o.of("--strategy");
  if (dtype != "fp32" && dtype != "bf16" && dtype != "mixed")
    throw std::invalid_argument("--dtype " + dtype + ": want fp32, bf16 or mixed");
  fsdp::ShardOptions options;
  if (dtype != "fp32") options.precision.param_dtype = at::kBFloat16;
  if (dtype == "mixed") {
    options.precision.param_dtype_of = [](const fsdp::ParameterInfo& info) {
      return info.shape.size() >= 2 ? at::kBFloat16 : at::kFloat;
    };
  }
  if (o.of("--optimizer") == "adamw_int8") options.alignment = fsdp::kQuantisedBlock;
  options.reshard_after_forward = strategy != "shard_grad_op" && strategy != "zero1";
  options.reshard_after_backward = strategy != "zero1";
  return options;
}

std::vector<fsdp::MeshAxis> axes_of(const Options& o) {
  const std::string& strategy = o.of("--strategy");
  if (strategy == "no_shard") return {{"replicate", o.world_size()}};
  if (strategy == "hybrid_shard") return {{"replicate", o.world_size() / 2}, {"shard", 2}};
  if (strategy != "full_shard" && strategy != "shard_grad_op" && strategy != "zero1")
    throw std::invalid_argument("--strategy " + strategy + ": no such strategy");
  return {};
}

std::unique_ptr<fsdp::Optimizer> make_optimizer(const std::string& name, fsdp::ShardedModel& model) {
  fsdp::AdamWOptions adamw;
  if (name == "adamw_bf16") adamw.moments = fsdp::Moments::kBf16;
  if (name == "adamw_int8") adamw.moments = fsdp::Moments::kInt8;
  if (name.starts_with("adamw")) return std::make_unique<fsdp::AdamW>(model, adamw);
  if (name == "muon") return std::make_unique<fsdp::Muon>(model);
  if (name == "adafactor") return std::make_unique<fsdp::Adafactor>(model);
  throw std::invalid_argument("--optimizer " + name + ": no such optimizer");
}

void train(const Options& o, const ForkedRank& place) {
  at::set_num_threads(1);
  fsdp::MeshOptions mesh_options;
  mesh_options.axes = axes_of(o);
  fsdp::DeviceMesh mesh(place.store, place.rank, place.world_size, mesh_options);
  const std::string& name = o.of("--model");
  const Trained trained = name == "small" ? small_model() : of_family(worker::family(name), o.folder);
  fsdp::ShardedModel sharded(trained.module, mesh);
  trained.shard(sharded, shard_options(o));
  fsdp::load_tensors(sharded, fsdp::TensorFiles(o.folder), trained.names);
  const auto optimizer = make_optimizer(o.of("--optimizer"), sharded);

  const Batches batches(o.folder / "batches.safetensors");
  const std::int64_t steps = batches.steps();
  const at::Tensor losses = at::zeros({steps}, at::kDouble), norms = at::zeros_like(losses);
  for (std::int64_t step = 0; step < steps; ++step) {
    const double weight = trained.weight(batches.of(step, 0, 1));
    const at::Tensor loss = trained.loss(batches.of(step, place.rank, place.world_size)) / weight;
    (loss * place.world_size).backward();  // the engine takes the mean over the ranks
    losses[step] = mesh.control().all_reduce(loss.item<double>());
    norms[step] = fsdp::gradient_norm(sharded).norm.item<double>();
    optimizer->step(std::stod(o.of("--rate")));
    sharded.zero_grad();
  }
  const auto state = sharded.gather_full_state(/*rank_zero_only=*/true);
  if (place.rank == 0) {
    std::vector<std::pair<std::string, at::Tensor>> tensors{{"losses", losses}, {"norms", norms}};
    for (const auto& [parameter, value] : state) tensors.emplace_back("weight/" + parameter, value);
    fsdp::write_safetensors(o.out, tensors);
  }
  mesh.control().barrier();
}

Options parse(int count, char** arguments) {
  if (count < 3 || count % 2 == 0) throw std::invalid_argument("want FOLDER, OUT and pairs of an option and its value");
  Options o;
  o.folder = arguments[1];
  o.out = arguments[2];
  for (int i = 3; i < count; i += 2) {
    const auto at = o.values.find(arguments[i]);
    if (at == o.values.end()) throw std::invalid_argument(std::string("unknown option ") + arguments[i]);
    at->second = arguments[i + 1];
  }
  return o;
}

}  // namespace

int main(int count, char** arguments) {
  Options options;
  try {
    options = parse(count, arguments);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "peers_engine_rank: %s\n", error.what());
    return 2;
  }
  return run_forked_ranks(options.world_size(), [&](const ForkedRank& place) { train(options, place); });
}
