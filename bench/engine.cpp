// Steps of a Llama-like decoder under the engine, or as a plain LibTorch model: how long they take and what memory they
// need. bench/engine_peer.py takes the same options and prints the same JSON for PyTorch and FSDP2.
//
// Usage: engine_bench [--dim N] [--layers N] [--heads N] [--kv-heads N] [--intermediate N] [--vocab N] [--seq N]
//   [--batch N] [--steps N] [--warm-up N] [--world-size N] [--dtype fp32|bf16] [--strategy NAME] [--device cpu|cuda]
//   [--transport shared_memory|sockets]
//   [--moments fp32|bf16|int8] [--checkpointing] [--keep linear|attention|both] [--document N] [--plain] [--cuda-graph]
// --batch counts the sequences of a rank. A step is forward, backward and AdamW on one batch. Rank 0 prints one JSON
// line. step_ms is the median step on the CPU. On CUDA it is the mean step between two synchronisations of the device.
// update_ms is the median of AdamW's part of a step, on the CPU and with the engine alone.
// --keep: results that --checkpointing keeps of a layer. --document: each row is packed documents of N tokens.
// --cuda-graph: each step is a replay of one CUDA graph.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/forked_ranks.h"
#include "fsdp/engine/fully_shard.h"
#include "fsdp/engine/initialize.h"
#include "fsdp/memory/storage.h"
#include "fsdp/optim/optimizers.h"
#include "fsdp/optim/step_graph.h"
#include "fsdp/text/json.h"
#include "worker/models/llama/llama_model.h"
#include "worker/models/ops.h"
#include "worker/train/strategy.h"
#ifdef MUSTER_WITH_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#endif

namespace {

constexpr double kRate = 3e-4, kBeta1 = 0.9, kBeta2 = 0.95, kEps = 1e-8, kDecay = 0.1;

struct Options {
  std::int64_t dim = 256, layers = 8, heads = 4, kv_heads = 0, intermediate = 0, vocab = 1024;
  std::int64_t document = 0;  // 0: a row is one text
  std::int64_t seq = 128, batch = 2, steps = 10, warm_up = 3, world_size = 1;
  std::string dtype = "fp32", strategy = "full_shard", device = "cpu", transport = "shared_memory", moments = "fp32";
  std::string keep = "none";
  bool checkpointing = false, plain = false, cuda_graph = false;
};

template <class T>
T choose(const std::string& what, const std::string& name, const std::vector<std::pair<std::string, T>>& values) {
  std::string known;
  for (const auto& [key, value] : values) {
    if (key == name) return value;
    known += (known.empty() ? "" : ", ") + key;
  }
  throw std::invalid_argument(what + " " + name + ": want one of " + known);
}

Options parse(int count, char** arguments) {
  Options o;
  const std::vector<std::pair<std::string, std::int64_t*>> numbers = {
      {"--dim", &o.dim},           {"--layers", &o.layers},     {"--heads", &o.heads},
      {"--kv-heads", &o.kv_heads}, {"--seq", &o.seq},           {"--vocab", &o.vocab},
      {"--batch", &o.batch},       {"--document", &o.document}, {"--intermediate", &o.intermediate},
      {"--steps", &o.steps},       {"--warm-up", &o.warm_up},   {"--world-size", &o.world_size}};
  const std::vector<std::pair<std::string, std::string*>> words = {
      {"--dtype", &o.dtype},         {"--strategy", &o.strategy}, {"--device", &o.device},
      {"--transport", &o.transport}, {"--moments", &o.moments},   {"--keep", &o.keep}};
  const std::vector<std::pair<std::string, bool*>> switches = {
      {"--checkpointing", &o.checkpointing}, {"--plain", &o.plain}, {"--cuda-graph", &o.cuda_graph}};
  const auto find = [](const auto& list, const std::string& name) {
    return std::find_if(list.begin(), list.end(), [&](const auto& item) { return item.first == name; });
  };
  for (int i = 1; i < count; ++i) {
    const std::string name = arguments[i];
    if (const auto at = find(switches, name); at != switches.end()) {
      *at->second = true;
      continue;
    }
    const auto number = find(numbers, name);
    const auto word = find(words, name);
    if (number == numbers.end() && word == words.end()) throw std::invalid_argument("unknown option " + name);
    if (++i == count) throw std::invalid_argument(name + " wants a value");
    if (word != words.end()) *word->second = arguments[i];
    if (number != numbers.end() && (*number->second = std::atoll(arguments[i])) < 1)
      throw std::invalid_argument(name + " " + arguments[i] + ": want a whole number of at least 1");
  }
  if (o.kv_heads == 0) o.kv_heads = o.heads;
  if (o.intermediate == 0) o.intermediate = (o.dim * 8 / 3 + 31) / 32 * 32;
  if (o.document > 0 && o.seq % o.document != 0)
    throw std::invalid_argument("--document wants a divisor of --seq " + std::to_string(o.seq));
  if (o.plain && o.world_size != 1) throw std::invalid_argument("--plain wants --world-size 1");
  if (o.cuda_graph && (o.plain || o.document > 0 || o.device != "cuda"))
    throw std::invalid_argument("--cuda-graph wants --device cuda, and neither --plain nor --document");
  if (o.cuda_graph && o.warm_up <= fsdp::StepGraph::kWarmUp)
    throw std::invalid_argument("--cuda-graph wants --warm-up " + std::to_string(fsdp::StepGraph::kWarmUp + 1) +
                                " or more: the graph is recorded in that step");
  return o;
}

spec::Llama sizes(const Options& o) {
  auto sizes = spec::standard<spec::Llama>(spec::llama());
  sizes.vocab_size = o.vocab;
  sizes.hidden_size = o.dim;
  sizes.intermediate_size = o.intermediate;
  sizes.num_hidden_layers = o.layers;
  sizes.num_attention_heads = o.heads;
  sizes.num_key_value_heads = o.kv_heads;
  sizes.max_position_embeddings = o.seq;
  sizes.tie_word_embeddings = false;
  return sizes;
}

/// The results of a layer that --checkpointing keeps.
fsdp::RecomputeOptions kept_by(const Options& o) {
  using Names = std::set<std::string, std::less<>>;
  const std::string linear(worker::kLinear), attention(worker::kAttention);
  return {.keep = choose<Names>(
              "--keep", o.keep,
              {{"none", {}}, {"linear", {linear}}, {"attention", {attention}}, {"both", {linear, attention}}})};
}

std::vector<fsdp::MeshAxis> axes_of(const Options& o) {
  const int ranks = static_cast<int>(o.world_size);
  if (o.strategy == "no_shard") return {{"replicate", ranks}};
  if (o.strategy != "hybrid_shard") return {};
  if (ranks % 2 != 0) throw std::invalid_argument("--strategy hybrid_shard wants an even --world-size");
  return {{"replicate", ranks / 2}, {"shard", 2}};
}

using Clock = std::chrono::steady_clock;

/// A model with its optimizer.
class Trainee {
 public:
  virtual ~Trainee() = default;
  virtual const worker::LlamaForCausalLm& model() const = 0;
  virtual void update() = 0;
  /// Milliseconds of each of the optimizer's steps so far. Empty: they are not measured.
  virtual std::vector<double> updates_ms() const { return {}; }
  virtual std::int64_t state_bytes() const { return 0; }
  /// Forward, backward and update. Returns the loss.
  virtual at::Tensor step(const worker::Rows& rows, const at::Tensor& targets) {
    const at::Tensor loss = model().loss(rows, targets) / targets.numel();
    loss.backward();
    update();
    return loss;
  }
};

class ShardedTrainee : public Trainee {
 public:
  ShardedTrainee(const Options& o, fsdp::DeviceMesh& mesh)
      : model_([&] {
          const fsdp::MetaDeviceGuard guard;
          return std::make_shared<worker::LlamaForCausalLm>(sizes(o));
        }()),
        sharded_(model_, mesh) {
    fsdp::ShardOptions options;
    options.precision.param_dtype =
        choose<at::ScalarType>("--dtype", o.dtype, {{"fp32", at::kFloat}, {"bf16", at::kBFloat16}});
    options.reshard_after_forward = o.strategy != "shard_grad_op" && o.strategy != "zero1";
    options.reshard_after_backward = o.strategy != "zero1";
    const auto moments = choose<fsdp::Moments>(
        "--moments", o.moments,
        {{"fp32", fsdp::Moments::kFp32}, {"bf16", fsdp::Moments::kBf16}, {"int8", fsdp::Moments::kInt8}});
    if (moments == fsdp::Moments::kInt8) options.alignment = fsdp::kQuantisedBlock;
    for (const auto& layer : model_->blocks()) {
      layer->wrapper = worker::wrapper_of(sharded_.fully_shard(layer, options));
      if (o.checkpointing) layer->wrapper = worker::nested(layer->wrapper, worker::recomputing(*layer, kept_by(o)));
    }
    options.reshard_after_forward = false;
    model_->wrapper = worker::wrapper_of(sharded_.fully_shard(model_, options));
    fsdp::initialize(sharded_, 1, [this](const std::string& name, const at::Tensor& values, at::Generator& random) {
      worker::draw_normal(name, values, model_->config().initializer_range, random);
    });
    fsdp::AdamWOptions adam;
    adam.beta1 = kBeta1;
    adam.beta2 = kBeta2;
    adam.eps = kEps;
    adam.weight_decay = kDecay;
    adam.moments = moments;
    adam.group = [](const fsdp::ParameterInfo&) { return fsdp::ParameterGroup(); };
    optimizer_.emplace(sharded_, adam);
    if (o.cuda_graph) {
      rate_ = at::full({}, kRate, at::TensorOptions(at::kFloat).device(mesh.device()));
      graph_.emplace(sharded_, *optimizer_, fsdp::make_device_graph(mesh.device()));
    }
  }

  const worker::LlamaForCausalLm& model() const override { return *model_; }
  void update() override {
    if (graph_) {
      optimizer_->step(rate_);
    } else {
      const auto before = Clock::now();
      optimizer_->step(kRate);
      updates_ms_.push_back(std::chrono::duration<double, std::milli>(Clock::now() - before).count());
    }
    sharded_.zero_grad();
  }
  std::vector<double> updates_ms() const override { return updates_ms_; }
  std::int64_t state_bytes() const override { return optimizer_->state_bytes(); }
  at::Tensor step(const worker::Rows& rows, const at::Tensor& targets) override {
    if (!graph_) return Trainee::step(rows, targets);
    const auto& in = graph_->inputs({rows.ids, targets});
    return graph_->run([&] { return std::vector<at::Tensor>{Trainee::step(in[0], in[1])}; })[0];
  }

 private:
  std::shared_ptr<worker::LlamaForCausalLm> model_;
  fsdp::ShardedModel sharded_;
  std::optional<fsdp::AdamW> optimizer_;
  at::Tensor rate_;
  std::optional<fsdp::StepGraph> graph_;
  std::vector<double> updates_ms_;
};

/// LibTorch without the engine: one fused AdamW over all parameters. In bf16 the optimizer has fp32 masters.
class PlainTrainee : public Trainee {
 public:
  PlainTrainee(const Options& o, c10::Device device) : model_(std::make_shared<worker::LlamaForCausalLm>(sizes(o))) {
    fsdp::initialize(*model_, 1, [this](const std::string& name, const at::Tensor& values, at::Generator& random) {
      worker::draw_normal(name, values, model_->config().initializer_range, random);
    });
    model_->to(device);
    for (const auto& parameter : model_->parameters()) masters_.push_back(parameter.detach());
    if (choose<bool>("--dtype", o.dtype, {{"fp32", false}, {"bf16", true}})) {
      for (auto& master : masters_) master = master.clone();
      model_->to(at::kBFloat16);
    }
    if (o.checkpointing) {
      for (const auto& layer : model_->blocks()) layer->wrapper = worker::recomputing(*layer, kept_by(o));
    }
    for (const auto& master : masters_) {
      averages_.push_back(at::zeros_like(master));
      squares_.push_back(at::zeros_like(master));
      steps_.push_back(at::zeros({}, master.options()));
    }
  }

  const worker::LlamaForCausalLm& model() const override { return *model_; }
  void update() override {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> parameters = model_->parameters(), gradients, values;
    for (const auto& parameter : parameters) gradients.push_back(parameter.grad());
    const bool is_mixed = parameters.front().scalar_type() != at::kFloat;
    if (is_mixed) {
      for (auto& gradient : gradients) gradient = gradient.to(at::kFloat);
      for (const auto& parameter : parameters) values.push_back(parameter.detach());
    }
    at::_foreach_add_(steps_, 1);
    at::_fused_adamw_(masters_, gradients, averages_, squares_, {}, steps_, kRate, kBeta1, kBeta2, kDecay, kEps,
                      /*amsgrad=*/false, /*maximize=*/false);
    if (is_mixed) at::_foreach_copy_(values, masters_);
    for (auto& parameter : parameters) parameter.mutable_grad().reset();
  }

 private:
  std::shared_ptr<worker::LlamaForCausalLm> model_;
  std::vector<at::Tensor> masters_, averages_, squares_, steps_;
};

double seconds_since_boot() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

/// When this process started, in seconds since boot, to 10 ms.
double process_start() {
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  return std::stod(field) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

rusage own_use() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  return use;
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

double in_mb(std::int64_t bytes) {
  return static_cast<double>(bytes) / 1e6;
}

void synchronise(c10::Device device) {
#ifdef MUSTER_WITH_CUDA
  if (device.is_cuda()) c10::cuda::device_synchronize();
#else
  (void)device;
#endif
}

/// Starts a new peak of the device's memory.
void forget_cuda_peak(c10::Device device) {
#ifdef MUSTER_WITH_CUDA
  if (device.is_cuda()) c10::cuda::CUDACachingAllocator::resetPeakStats(device.index());
#else
  (void)device;
#endif
}

fsdp::Json cuda_peak_mb(c10::Device device) {
#ifdef MUSTER_WITH_CUDA
  if (device.is_cuda()) {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
    return in_mb(stats.allocated_bytes[0].peak);
  }
#else
  (void)device;
#endif
  return nullptr;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// One rank's batch, the same in each step.
class Steps {
 public:
  Steps(const Options& o, Trainee& trainee, c10::Device device, int rank) : trainee_(trainee), device_(device) {
    at::manual_seed(static_cast<std::uint64_t>(100 + rank));
    const at::Tensor tokens = at::randint(o.vocab, {o.batch, o.seq + 1}, at::kLong);
    rows_.ids = tokens.narrow(1, 0, o.seq).contiguous().to(device);
    if (o.document > 0) {
      const std::vector<std::int64_t> lengths(static_cast<std::size_t>(o.batch * o.seq / o.document), o.document);
      const at::Tensor starts =
          at::arange(0, o.batch * o.seq + 1, o.document, at::TensorOptions(at::kInt).device(device));
      rows_.documents = std::make_shared<const worker::Documents>(worker::Documents{lengths, starts});
      rows_.positions = at::arange(o.document).repeat({o.batch, o.seq / o.document}).to(device);
    }
    targets_ = tokens.narrow(1, 1, o.seq).contiguous().to(device);
  }

  void run_one() { loss_ = trainee_.step(rows_, targets_); }

  /// Milliseconds of a step.
  double run(std::int64_t steps) {
    std::vector<double> took;
    const auto begun = Clock::now();
    auto before = begun;
    for (std::int64_t i = 0; i < steps; ++i) {
      run_one();
      const auto now = Clock::now();
      took.push_back(std::chrono::duration<double, std::milli>(now - before).count());
      before = now;
    }
    synchronise(device_);
    if (device_.is_cuda()) {
      return std::chrono::duration<double, std::milli>(Clock::now() - begun).count() / static_cast<double>(steps);
    }
    return median(std::move(took));
  }

  double loss() const { return loss_.item<double>(); }

 private:
  Trainee& trainee_;
  c10::Device device_;
  worker::Rows rows_{at::Tensor()};
  at::Tensor targets_, loss_;
};

void train(const Options& o, const ForkedRank& place, double started) {
  at::set_num_threads(1);
  const c10::Device device = choose<bool>("--device", o.device, {{"cpu", false}, {"cuda", true}})
                                 ? fsdp::device_of_rank(place.rank)
                                 : c10::kCPU;
  if (o.device == "cuda" && !device.is_cuda())
    throw std::invalid_argument("--device cuda: this build or this machine has no GPU; want --device cpu");
  fsdp::MeshOptions mesh_options;
  mesh_options.axes = axes_of(o);
  mesh_options.device = device;
  mesh_options.shared_memory = choose<bool>("--transport", o.transport, {{"shared_memory", true}, {"sockets", false}});
  fsdp::DeviceMesh mesh(place.store, place.rank, place.world_size, mesh_options);

  const auto bytes = std::make_shared<fsdp::TensorBytes>();
  std::unique_ptr<Trainee> trainee;
  std::optional<Steps> steps;
  double first = 0;
  {
    // Counting costs time for each tensor, so only the first steps are counted.
    const fsdp::CountTensorBytes counts(bytes);
    if (o.plain) {
      trainee = std::make_unique<PlainTrainee>(o, device);
    } else {
      trainee = std::make_unique<ShardedTrainee>(o, mesh);
    }
    steps.emplace(o, *trainee, device, place.rank);
    steps->run_one();
    synchronise(device);
    first = seconds_since_boot() - started;
    bytes->forget_peak();
    forget_cuda_peak(device);
    for (std::int64_t i = 1; i < o.warm_up; ++i) steps->run_one();
  }
  synchronise(device);
  mesh.control().barrier();
  const rusage before = own_use();
  const double step_ms = steps->run(o.steps);
  const rusage after = own_use();
  const double loss = mesh.control().all_reduce(steps->loss()) / place.world_size;
  if (place.rank == 0) {
    fsdp::Json out;
    out["step_ms"] = step_ms;
    out["tokens_per_s"] = static_cast<double>(o.batch * o.seq * o.world_size) / step_ms * 1e3;
    out["peak_rss_mb"] = in_mb(after.ru_maxrss * 1024);
    out["tensor_peak_mb"] = device.is_cpu() && o.warm_up > 1 ? fsdp::Json(in_mb(bytes->peak())) : fsdp::Json(nullptr);
    out["peak_cuda_mb"] = cuda_peak_mb(device);
    const std::vector<double> updates = trainee->updates_ms();
    if (device.is_cpu() && !updates.empty()) {
      out["update_ms"] = median({updates.end() - static_cast<std::ptrdiff_t>(o.steps), updates.end()});
      out["state_mb"] = in_mb(trainee->state_bytes());
    }
    out["loss"] = loss;
    out["system_time_s"] = seconds(after.ru_stime) - seconds(before.ru_stime);
    out["minor_faults"] = static_cast<std::int64_t>(after.ru_minflt - before.ru_minflt);
    out["start_to_first_step_s"] = first;
    std::printf("%s\n", out.dump().c_str());
    std::fflush(stdout);
  }
  mesh.control().barrier();
}

}  // namespace

int main(int count, char** arguments) {
  Options options;
  try {
    options = parse(count, arguments);
    choose<bool>(
        "--strategy", options.strategy,
        {{"full_shard", true}, {"shard_grad_op", true}, {"zero1", true}, {"no_shard", true}, {"hybrid_shard", true}});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "engine_bench: %s\n", error.what());
    return 2;
  }
  const double started = process_start();
  return run_forked_ranks(static_cast<int>(options.world_size),
                          [&](const ForkedRank& place) { train(options, place, started); });
}
