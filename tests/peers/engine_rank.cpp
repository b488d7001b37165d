// Trains a model under the engine, on weights and batches that another program wrote, and writes what came of it.
//
// Usage: peers_engine_rank FOLDER OUT [--model small|llama] [--world-size N] [--strategy NAME]
//   [--dtype fp32|bf16|mixed] [--rate R]
// FOLDER has the weights as safetensors, for a Llama also its config.json, and batches.safetensors: ids and targets,
// int64 [steps, sequences, positions]. A target of -100 does not count. Each rank takes an equal part of the sequences.
// The loss is the mean over the targets that count, of all ranks. mixed: bf16 for matrices and fp32 for the rest.
// OUT: losses and norms (of the gradients), fp64 [steps], and "weight/<name>" for each parameter after the last step.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../fsdp/small_model.h"
#include "../worker/llama_sizes.h"
#include "bench/forked_ranks.h"
#include "fsdp/gradient_norm.h"
#include "fsdp/json.h"
#include "fsdp/safetensors.h"
#include "fsdp/tensor_files.h"
#include "models/llama.h"
#include "train/unit_wrapper.h"

namespace {

struct Options {
  std::filesystem::path folder, out;
  std::map<std::string, std::string> values{{"--model", "small"},
                                            {"--world-size", "1"},
                                            {"--strategy", "full_shard"},
                                            {"--dtype", "fp32"},
                                            {"--rate", "3e-4"}};
  const std::string& of(const char* name) const { return values.at(name); }
  int world_size() const { return std::stoi(of("--world-size")); }
};

/// A model, and how its units are made.
struct Trained {
  std::shared_ptr<torch::nn::Module> module;
  std::function<void(fsdp::ShardedModel&, const fsdp::ShardOptions&)> shard;
  std::function<at::Tensor(const at::Tensor& ids, const at::Tensor& targets)> loss;  // the sum over targets that count
};

/// The root is needed first in backward, so it stays gathered.
fsdp::ShardOptions of_root(fsdp::ShardOptions options) {
  options.reshard_after_forward = false;
  return options;
}

/// Of tests/fsdp/small_model.h: tied, frozen and unused parameters, and odd shapes.
Trained small_model() {
  const auto model = make_model();
  Trained made{model, {}, {}};
  made.shard = [model](fsdp::ShardedModel& sharded, const fsdp::ShardOptions& options) {
    for (const auto& block : model->blocks) block->wrap = wrapper(sharded.fully_shard(block, options));
    model->wrap = wrapper(sharded.fully_shard(model, of_root(options)));
  };
  made.loss = [model](const at::Tensor& ids, const at::Tensor& targets) {
    return model->wrap(ids, [&](const at::Tensor& in) {
      at::Tensor x = at::embedding(model->embedding, in);
      for (const auto& block : model->blocks) x = block->forward(x);
      const at::Tensor seen = normalise(x, model->norm).to(model->head.scalar_type());
      const at::Tensor logits = at::matmul(seen, model->head.t()).to(at::kFloat).flatten(0, 1);
      return at::cross_entropy_loss(logits, targets.flatten(), {}, at::Reduction::Sum);
    });
  };
  return made;
}

Trained llama(const std::filesystem::path& folder) {
  std::ifstream file(folder / "config.json");
  std::ostringstream text;
  text << file.rdbuf();
  const auto model = std::make_shared<worker::LlamaForCausalLm>(llama_sizes(fsdp::Json::parse(text.str())));
  Trained made{model, {}, {}};
  made.shard = [model](fsdp::ShardedModel& sharded, const fsdp::ShardOptions& options) {
    for (const auto& layer : model->layers()) layer->wrapper = worker::wrapper_of(sharded.fully_shard(layer, options));
    model->wrapper = worker::wrapper_of(sharded.fully_shard(model, of_root(options)));
  };
  made.loss = [model](const at::Tensor& ids, const at::Tensor& targets) { return model->loss(ids, targets); };
  return made;
}

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

void train(const Options& o, const ForkedRank& place) {
  at::set_num_threads(1);
  fsdp::MeshOptions mesh_options;
  mesh_options.axes = axes_of(o);
  fsdp::DeviceMesh mesh(place.store, place.rank, place.world_size, mesh_options);
  const Trained trained = o.of("--model") == "llama" ? llama(o.folder) : small_model();
  fsdp::ShardedModel sharded(trained.module, mesh);
  trained.shard(sharded, shard_options(o));
  fsdp::load_tensors(sharded, fsdp::TensorFiles(o.folder));
  fsdp::AdamW optimizer(sharded);

  const fsdp::SafetensorsReader batches(o.folder / "batches.safetensors");
  const at::Tensor ids = batches.tensor("ids"), targets = batches.tensor("targets");
  const std::int64_t steps = ids.size(0);
  const at::Tensor losses = at::zeros({steps}, at::kDouble), norms = at::zeros_like(losses);
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto mine = [&](const at::Tensor& of_all) {
      return part_of(of_all[step], place.rank, place.world_size).clone();
    };
    const double weight = targets[step].ne(-100).sum().item<double>();
    const at::Tensor loss = trained.loss(mine(ids), mine(targets)) / weight;
    (loss * place.world_size).backward();  // the engine takes the mean over the ranks
    losses[step] = mesh.control().all_reduce(loss.item<double>());
    norms[step] = fsdp::gradient_norm(sharded).norm.item<double>();
    optimizer.step(std::stod(o.of("--rate")));
    sharded.zero_grad();
  }
  const auto state = sharded.gather_full_state(/*rank_zero_only=*/true);
  if (place.rank == 0) {
    std::vector<std::pair<std::string, at::Tensor>> tensors{{"losses", losses}, {"norms", norms}};
    for (const auto& [name, value] : state) tensors.emplace_back("weight/" + name, value);
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
