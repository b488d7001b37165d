#include "worker/train/setup.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/usage_error.h"
#include "fsdp/engine/random_state.h"
#include "fsdp/files/checkpoint.h"
#include "worker/train/agreement.h"
#include "worker/train/gpu.h"
#include "worker/train/strategy.h"

namespace worker {
namespace {

/// How long ranks try to reach rank 0's store. Their starts may be minutes apart.
constexpr std::chrono::minutes kStorePatience{5};

/// The store that rank 0 serves. Sets `mine` to its address.
fsdp::ListeningStore listen(const agent::rank::RankEnvironment& environment, const agent::rank::Reporter& reporter,
                            agent::rank::Endpoint& mine) {
  if (!reporter.assigns_rendezvous()) {
    if (!environment.master) {
      throw std::runtime_error("no rendezvous address: set MASTER_ADDR and MASTER_PORT to rank 0's address");
    }
    mine = *environment.master;
  } else {
    const bool one_node = environment.local_world_size == environment.world_size || !environment.controller;
    mine = {one_node ? "127.0.0.1" : agent::rank::own_address_towards(*environment.controller), 0};
  }
  auto listening = fsdp::listen_store(mine.host, mine.port);
  mine.port = listening.port;
  return listening;
}

/// Throws when some ranks have a GPU and others do not. Such ranks would wait for each other until their timeouts.
void check_same_device(c10d::Store& store, const std::string& prefix, int rank, bool gpu) {
  const auto text_of = [](bool has) { return std::string(has ? "a GPU" : "no GPU"); };
  const std::string key = prefix + "/device", mine = text_of(gpu);
  if (rank == 0) store.set(key, std::vector<std::uint8_t>(mine.begin(), mine.end()));
  const auto bytes = store.get(key);
  if (const std::string first(bytes.begin(), bytes.end()); first != mine) {
    throw std::runtime_error("rank " + std::to_string(rank) + " sees " + mine + ", but rank 0 sees " + first +
                             "; give every rank GPUs, or hide them all with CUDA_VISIBLE_DEVICES=\"\"");
  }
}

/// Lets one wait be told once. To musterd a log that grows is output, so a line that says of a hang that it goes on
/// would put off its end. Thread-safe.
class LastWord {
 public:
  bool is_new(const std::string& text) {
    const std::scoped_lock lock(mutex_);
    return std::exchange(text_, text) != text;
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

/// The rule of the order in checkpoints that do not record it.
constexpr std::int64_t kFirstOrder = 1;

constexpr const char *kOrder = "order", *kEpoch = "epoch";

fsdp::Json rule_json(const data::order::OrderOptions& order) {
  if (order.bucket_batches == 0) return fsdp::Json(data::order::Order::kShuffled);
  return fsdp::Json(fsdp::Json::Array{data::order::Order::kBucketed, order.batch_size, order.bucket_batches});
}

/// Throws base::UsageError when the run's data are not those that the checkpoint at `path` was trained on. `extra` is
/// the manifest's member of that name. Throws fsdp::JsonError when it does not name data.
void check_same_data(const std::string& fingerprint, const std::string& source, const fsdp::Json& extra,
                     const std::filesystem::path& path) {
  const std::string& then = extra.at("data").as_string();
  if (then == fingerprint) return;
  std::string remedy = "restore it or its data in the cache folder";
  if (then.find(" byte tokens, checksum ") != std::string::npos) remedy = "an earlier muster has cut it in another way";
  const fsdp::Json* asked = extra.find("source");
  if (asked != nullptr && asked->as_string() != source) {
    remedy = "the run file asks for " + source + ", then for " + asked->as_string() + ": restore the run file";
  }
  throw base::UsageError("the text has changed since " + path.native() + " was saved (then " + then + ", now " +
                         fingerprint + "); " + remedy + ", or use a new checkpoint.folder");
}

/// Writes what names the order of samples into the member "extra" of a checkpoint.
void save_order(const data::order::OrderOptions& order, fsdp::Json& extra) {
  extra[kOrder] = rule_json(order);
  extra[kEpoch]["samples"] = order.samples;
  extra[kEpoch]["seed"] = static_cast<std::int64_t>(order.seed);
}

/// Throws base::UsageError when the checkpoint was saved with another order of samples: by a program with other rules,
/// or by a run with another seed, other buckets, or data that are cut into another number of samples. A saved position
/// means other samples under another order. `changes`: the settings that differ, for the message.
void check_same_order(const data::order::OrderOptions& order, const std::string& changes, const fsdp::Json& extra,
                      const std::filesystem::path& path) {
  const fsdp::Json* found = extra.find(kOrder);
  const fsdp::Json saved = found != nullptr ? *found : fsdp::Json(kFirstOrder), now = rule_json(order);
  if (saved != now && (saved.is_array() || (now.is_array() && saved == fsdp::Json(data::order::Order::kShuffled)))) {
    throw base::UsageError(path.native() + " was saved with other length buckets (" + saved.dump() + ", now " +
                           now.dump() +
                           ": rule, batch size, batches of a bucket), and so with another order of samples; restore "
                           "train.batch_size and data.bucket_batches, or use a new checkpoint.folder");
  }
  if (saved != now) {
    throw base::UsageError(path.native() + " was saved by a program with another order of samples (order " +
                           saved.dump() + ", this program has order " + now.dump() +
                           "); continue with that program, or use a new checkpoint.folder");
  }
  const fsdp::Json* epoch = extra.find(kEpoch);
  if (epoch == nullptr) return;
  const auto refuse = [&](const char* what, std::int64_t then, std::int64_t here) {
    if (then == here) return;
    throw base::UsageError(
        path.native() + " was saved with " + what + " " + std::to_string(then) + ", now " + std::to_string(here) +
        (changes.empty() ? "" : " (" + changes + ")") +
        ", and so with another order of samples; restore the run file, or use a new checkpoint.folder");
  };
  refuse("train.seed", epoch->at("seed").as_int(), static_cast<std::int64_t>(order.seed));
  refuse("training samples in an epoch:", epoch->at("samples").as_int(), order.samples);
}

void choose_algorithms(const spec::Training& train) {
  if (!train.deterministic) return;
  try {
    fsdp::compute_deterministically();
  } catch (const c10::Error& error) {
    throw base::UsageError(std::string("train.deterministic: ") + error.what_without_backtrace());
  }
}

}  // namespace

std::unique_ptr<fsdp::DeviceMesh> meet(const agent::rank::RankEnvironment& environment, agent::rank::Reporter& reporter,
                                       fsdp::MeshOptions options) {
  options.device = fsdp::device_of_rank(environment.local_rank);
  refuse_cpu_instead_of_gpus(options.device);
  if (environment.world_size == 1) return std::make_unique<fsdp::DeviceMesh>(nullptr, 0, 1, options);
  options.on_late = [rank = environment.rank, told = std::make_shared<LastWord>()](const std::string& text) {
    if (!told->is_new(text)) return;
    std::printf("[rank %d] waiting: %s\n", rank, text.c_str());
    std::fflush(stdout);
  };
  c10::intrusive_ptr<c10d::Store> store;
  agent::rank::Endpoint at;
  if (environment.rank == 0) {
    agent::rank::Endpoint mine;
    store = listen(environment, reporter, mine).store;
    at = reporter.rendezvous(mine);
  } else {
    at = reporter.rendezvous(std::nullopt);
    store = fsdp::connect_store(at.host, at.port, kStorePatience, options.on_late);
  }
  if (environment.local_world_size != environment.world_size)
    options.interface_address = agent::rank::own_address_towards(at);
  options.key_prefix = "attempt-" + std::to_string(environment.attempt);
  check_same_device(*store, options.key_prefix, environment.rank, options.device.is_cuda());
  return std::make_unique<fsdp::DeviceMesh>(std::move(store), environment.rank, environment.world_size, options);
}

Setup::Setup(RunConfig& given, const agent::rank::RankEnvironment& of_rank, agent::rank::Reporter& to,
             const MakeRecipe& make_recipe)
    : config(given),
      environment(of_rank),
      reporter(to),
      log(of_rank.rank),
      split(split_batch(given.train, of_rank.world_size)) {
  choose_algorithms(config.train);
  recipe = make_recipe(config);
  mesh = meet(environment, reporter, mesh_options(config.fsdp, environment));
  reporter.section(agent::rank::Section::kData);
  open_data();
  check_same_on_all_ranks();
  check_best();
  together(ranks(), [&] { check_export(config); });
  announce_exports();
  reporter.section(agent::rank::Section::kInit);
  deal();
  count_steps();
  check_sharding(config.fsdp, mesh->shard().world_size(), mesh->device());
  at::manual_seed(static_cast<std::uint64_t>(config.train.seed));
  parts = std::make_unique<Parts>(recipe->parts(), *mesh, config);
  recipe->attach(*parts);
  loss_scale.emplace(config.train, mesh->device());
  say_what_is_trained();
}

/// Opens the data of the run's newest checkpoint if a cache still has them, because sources such as a machine's manual
/// pages change during a run. Where nodes have separate caches, each rank searches its own.
void Setup::open_data() {
  newest = extra_of_newest_checkpoint();
  const fsdp::Json* saved = newest.find("data");
  const fsdp::Json* then = newest.find("source");
  const bool known = saved != nullptr && saved->is_string() && then != nullptr && then->is_string();
  source = recipe->data_source();
  const bool asks_alike = known && then->as_string() == source;
  together(ranks(), [&] {
    data = recipe->open_data(asks_alike ? saved->as_string() : "", environment);
    if (known) check_same_data(data.fingerprint, source, newest, newest.at("path").as_string());
  });
  if (!data.note.empty()) log.say(data.note);
}

/// The "extra" member of the newest checkpoint that looks whole, with the checkpoint's path; null when there is none.
/// The resume reports what is wrong with other checkpoints or with the folder.
fsdp::Json Setup::extra_of_newest_checkpoint() {
  fsdp::Json out;
  try {
    const std::filesystem::path folder = config.checkpoint.folder;
    if (const auto found = ranks().rank() == 0 ? fsdp::latest_valid(folder) : std::nullopt) {
      out = found->manifest.at("extra");
      out["path"] = found->path.native();
    }
  } catch (const std::runtime_error&) {
    out = {};
  }
  return fsdp::Json::parse(ranks().broadcast(out.dump()));
}

void Setup::check_same_on_all_ranks() {
  const std::string mine = data.fingerprint + "\n" + config.canonical;
  const std::string first = ranks().broadcast(mine);
  together(ranks(), [&] {
    if (mine != first) {
      throw base::UsageError("the text or the run file differs from rank 0's (here: " + data.fingerprint +
                             "); give all nodes the same files, such as a shared data.cache_folder");
    }
  });
}

void Setup::describe(fsdp::Json& extra) const {
  extra["data"] = data.fingerprint;
  extra["source"] = source;
  extra["name"] = config.name;
  extra["recipe"] = config.recipe;
  save_order(order, extra);
  save_settings(config, split, extra);
}

void Setup::check_same_run(const fsdp::Json& extra, const std::filesystem::path& path) const {
  check_same_data(data.fingerprint, source, extra, path);
  check_same_order(order, changes_text(config, split, extra), extra, path);
}

/// Refuses checkpoint.best before the first step when nothing is ever validated.
void Setup::check_best() const {
  const std::string& watched = config.checkpoint.best;
  if (const std::string why = watched.empty() ? "" : recipe->why_not_measured(watched); !why.empty())
    throw base::UsageError("checkpoint.best = \"" + watched + "\": " + why);
  const bool never = config.train.validation_every_steps == 0 && config.train.validation_every_epochs == 0;
  if (watched.empty() || (!never && recipe->data(Split::kValidation) != nullptr)) return;
  throw base::UsageError("checkpoint.best = \"" + watched + "\": nothing is validated; want " +
                         (never ? "train.validation_every_steps" : "data.validation_fraction") +
                         " above 0, or no checkpoint.best");
}

/// Puts the samples in order, and deals them out to the ranks.
void Setup::deal() {
  const auto samples = recipe->data(Split::kTrain);
  validation = recipe->data(Split::kValidation);
  order.samples = samples->samples();
  order.seed = static_cast<std::uint64_t>(config.train.seed);
  order.bucket_batches = config.data_options.bucket_batches;
  if (order.bucket_batches > 0) {
    order.batch_size = split.batch_size;
    order.length = [samples](std::int64_t sample) { return samples->length(sample); };
  }
  const LoaderOptions options{.threads = static_cast<int>(config.data_options.loader_threads),
                              .ahead = static_cast<int>(config.data_options.loader_ahead),
                              .pin = mesh->device().is_cuda(),
                              .seed = order.seed};
  loader.emplace(samples, data::order::Order(order), environment.rank, environment.world_size, options);
}

void Setup::count_steps() {
  if (config.train.epochs > 0 && config.train.steps == 0) {
    set_steps(config, static_cast<std::int64_t>(std::ceil(config.train.epochs / epochs_a_step())));
    log.say("%g epochs are %lld steps", config.train.epochs, static_cast<long long>(config.train.steps));
  }
  words_.total_steps = config.train.steps;
  reporter.program(words_);
}

void Setup::note(const std::string& text) {
  if (environment.rank != 0) return;
  words_.note += (words_.note.empty() ? "" : "; ") + text;
  reporter.program(words_);
}

/// Two jobs may export to one place, and then the later one wins. People hear of that before the hours are spent.
void Setup::announce_exports() {
  if (environment.rank != 0 || !exports_anything(config)) return;
  export_claims.emplace(config, environment);
  for (const std::string& text : export_claims->announce()) {
    log.say("warning: " + text);
    note(text);
  }
}

void Setup::say_what_is_trained() {
  const std::string of_tokens =
      data.tokens_per_sample > 0 ? " of " + std::to_string(data.tokens_per_sample) + " tokens" : "";
  log.say("%lld parameters, %d ranks on %s, %lld training samples%s from %s, batch %lld = %lld x %d ranks x %lld",
          static_cast<long long>(parts->trained().parameter_count()), environment.world_size,
          mesh->device().is_cuda() ? "GPUs" : "the CPU", static_cast<long long>(order.samples), of_tokens.c_str(),
          data.name.c_str(), static_cast<long long>(split.batch_size), static_cast<long long>(split.micro_batch_size),
          environment.world_size, static_cast<long long>(split.accumulation));
  const bool over_nccl = mesh->device().is_cuda() && !mesh->shares_gpus();
  if (const auto why = separate_reductions_without_effect(config.fsdp, mesh->shard().world_size(), over_nccl);
      !why.empty())
    log.say("warning: " + why);
  if (mesh->shares_gpus()) {
    log.say(
        "warning: ranks share a GPU, so they communicate through the host, which is slow; ask for a GPU a rank, or "
        "for fewer ranks");
  }
  if (mesh->device().is_cpu() && config.train.precision == spec::Precision::kFp16) {
    log.say(
        "warning: fp16 on most CPUs is several times slower than fp32; set train.precision = \"bf16\", or \"fp32\"");
  }
}

}  // namespace worker
