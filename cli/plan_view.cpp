#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <optional>
#include <set>
#include <string>

#include "agent/environment/rank_variables.h"
#include "base/cgroups.h"
#include "base/command.h"
#include "base/numbers.h"
#include "cli/cli_text.h"
#include "cli/submit.h"
#include "spec/jobfile/job_keys.h"
#include "spec/jobfile/run_file.h"
#include "spec/jobfile/spec.h"

namespace cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::seconds kPlanLimit{120};
constexpr const char* kCheckMemory = "fsdp.check_memory";
constexpr const char* kFullState = "full_state_bytes";

/// The memory that one rank of a job may use, as far as this program knows it.
struct RankMemory {
  std::int64_t bytes = 0;
  bool of_gpu = false;
  std::string of;  // "slurm.mem = 64GiB for 4 ranks"
};

struct PlanOptions {
  SubmitOptions job;
  std::string gpu_memory, memory;
};

/// The variables of the first rank. The others need the same memory.
std::vector<std::pair<std::string, std::string>> variables_of(const muster::v1::Resources& resources) {
  agent::environment::RankPlace place{.world_size = resources.nodes() * resources.ranks_per_node(),
                                      .local_world_size = resources.ranks_per_node(),
                                      .nodes = resources.nodes()};
  std::vector<std::pair<std::string, std::string>> out{{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}};
  for (auto& [name, value] : agent::environment::rank_variables(place)) out.emplace_back(name, value);
  return out;
}

/// A job with GPUs: `gpu_bytes`, unless that is 0. A job without: what [slurm] asks for, or this machine's memory if
/// `here` says that local jobs run on it. nullopt: not known.
std::optional<RankMemory> memory_of_rank(const muster::v1::JobSpec& spec, std::int64_t gpu_bytes, bool here) {
  const auto& resources = spec.resources();
  const auto mem = jobfile::slurm_whole(spec, "mem"), mem_per_cpu = jobfile::slurm_whole(spec, "mem_per_cpu");
  const std::int64_t ranks = std::max<std::int64_t>(1, resources.ranks_per_node());
  const auto of_ranks = [](std::int64_t count) {
    return count > 1 ? " for " + std::to_string(count) + " ranks" : std::string();
  };
  if (jobfile::gpus_of_rank(spec) > 0) {
    if (gpu_bytes == 0) return std::nullopt;
    return RankMemory{gpu_bytes, true, "--gpu-memory " + base::print_size_bytes(gpu_bytes)};
  }
  if (spec.executor() == "local" || spec.executor() == "debug") {
    if (!here) return std::nullopt;
    const auto memory = base::memory_limit();
    if (memory.bytes == 0) return std::nullopt;
    const auto all = ranks * std::max<std::int64_t>(1, resources.nodes());
    return RankMemory{memory.bytes / all, false, memory.of + " has " + bytes_text(memory.bytes) + of_ranks(all)};
  }
  if (mem > 0) {
    return RankMemory{mem / ranks, false, "slurm.mem = " + base::print_size_bytes(mem) + of_ranks(ranks)};
  }
  if (mem_per_cpu > 0 && resources.cpus_per_rank() > 0) {
    return RankMemory{mem_per_cpu * resources.cpus_per_rank(), false,
                      "slurm.mem_per_cpu = " + base::print_size_bytes(mem_per_cpu) + " x " +
                          std::to_string(resources.cpus_per_rank()) + " CPUs"};
  }
  return std::nullopt;
}

/// Asks muster-worker for the plan of a recipe's job; see worker/plan/plan_command.h for its members. Throws a Failure
/// if there is no muster-worker beside this program or in PATH, or if it cannot plan the job.
Json plan_of(const muster::v1::JobSpec& spec, const std::optional<RankMemory>& memory) {
  const auto worker = must_find("muster-worker", "and it makes the plans");
  base::Command command{.argv = {worker, "--run-file", "/dev/stdin", "--plan"}};
  if (memory ? memory->of_gpu : jobfile::gpus_of_rank(spec) > 0) command.argv.emplace_back("--gpu");
  if (memory) {
    const std::vector<std::string> of_memory{"--memory", std::to_string(memory->bytes), "--memory-of", memory->of};
    command.argv.insert(command.argv.end(), of_memory.begin(), of_memory.end());
  }
  command.input = jobfile::run_file(spec, "checkpoints", "cache").dump();
  command.time_limit = kPlanLimit;
  command.environment = variables_of(spec.resources());
  command.unset = {"MUSTER_*", "SLURM_*"};
  base::ProcessRunner runner(/*outlive_us=*/false);
  const auto answer = runner.run(command);
  if (!answer.could_not_start.empty()) throw Failure(kUsage, answer.could_not_start);
  if (answer.timed_out) throw Failure(kUsage, "the plan of " + spec.name() + " took more than two minutes");
  if (!answer.succeeded()) throw Failure(kUsage, "no plan of " + spec.name() + ": " + harmless(answer.err));
  auto plan = Json::parse(answer.out, nullptr, /*allow_exceptions=*/false);
  if (!plan.is_object()) throw Failure(kUsage, worker.native() + " printed no plan; is it of this version?");
  return plan;
}

std::int64_t parsed_size(const std::string& option, const std::string& text) {
  if (text.empty()) return 0;
  const auto bytes = base::parse_size_bytes(text);
  if (!bytes || *bytes < 1) throw Failure(kUsage, option + " " + text + ": want a size such as 80GiB");
  return *bytes;
}

/// The settings that decide about the memory of a job's ranks. Jobs with equal texts have equal plans.
std::string shape_of(const muster::v1::JobSpec& spec, const std::optional<RankMemory>& memory) {
  auto run = jobfile::run_file(spec, "", "");
  run.erase("name");
  run["checkpoint"].erase("folder");
  for (const char* key : {"seed", "learning_rate", "min_learning_rate", "warmup_steps", "steps", "weight_decay"})
    run["train"].erase(key);
  const auto& resources = spec.resources();
  return run.dump() + std::to_string(resources.nodes()) + "x" + std::to_string(resources.ranks_per_node()) + " " +
         std::to_string(memory ? memory->bytes : 0);
}

std::string bytes_cell(const Json& plan, const char* member, std::int64_t times = 1) {
  const auto bytes = plan.at(member).get<std::int64_t>() * times;
  return bytes == 0 ? "-" : bytes_text(bytes);
}

std::string number(const Json& plan, const char* member) {
  auto text = std::to_string(plan.at(member).get<std::int64_t>());
  for (auto place = static_cast<std::ptrdiff_t>(text.size()) - 3; place > 0; place -= 3)
    text.insert(static_cast<std::size_t>(place), ",");
  return text;
}

void print_table(const Json& plan) {
  struct Row {
    std::string what, of_rank, of_node;
  };
  const auto local = plan.at("ranks_of_node").get<std::int64_t>();
  std::vector<Row> rows;
  for (const auto& [what, member] : std::initializer_list<std::pair<const char*, const char*>>{
           {"parameters", "parameter_bytes"},
           {"gradients", "gradient_bytes"},
           {"optimizer states", "state_bytes"},
           {"pool of gathered units and gradients", "pool_bytes"},
           {"activations at the peak", "activation_bytes"},
           {"tensors at the peak", "tensor_bytes"},
           {"of these on the host, by fsdp.offload", "offloaded_bytes"},
           {"activations on the host", "host_activation_bytes"},
           {"copy for checkpoints, on the host", "snapshot_bytes"},
           {"full state at the end, on rank 0's host", kFullState},
           {"sent in a step", "wire_bytes"}}) {
    const bool is_of_one_rank = std::string_view(member) == kFullState;
    rows.push_back({what, bytes_cell(plan, member), bytes_cell(plan, member, is_of_one_rank ? 1 : local)});
  }
  rows.push_back({"collectives in a step", number(plan, "collectives"), "-"});
  for (const char* factor : {"6", "8", "16"}) {
    rows.push_back({std::string("estimate: ") + factor + " bytes a parameter",
                    bytes_text(plan.at("estimates").at(factor).get<std::int64_t>()), "-"});
  }
  Table table;
  table.add({"BYTES"}, rows, &Row::what);
  table.add({.title = "A RANK", .right = true}, rows, &Row::of_rank);
  table.add({.title = "A NODE", .right = true}, rows, &Row::of_node);
  std::cout << table.text();
}

void print_plan(const std::string& name, const Json& plan, const std::optional<RankMemory>& memory) {
  std::cout << name << ": " << number(plan, "parameters") << " parameters over " << plan.at("ranks") << " ranks, "
            << plan.at("ranks_of_node") << " a node; a step has " << plan.at("batch_size")
            << " samples = " << plan.at("micro_batch_size") << " x " << plan.at("ranks") << " ranks x "
            << plan.at("accumulation") << "\n\n";
  print_table(plan);
  if (const auto bytes = plan.value("graph_bytes", std::int64_t{0}); bytes > 0) {
    std::cout << "\ngraph    keeps " << bytes_text(bytes)
              << " of the activations between steps; a validation takes its own memory besides (train.cuda_graph)\n";
  }
  if (const auto note = plan.value("note", std::string()); !note.empty()) {
    std::cout << "\n";
    print_behind("assumed  ", 9, note);
  }
  const std::string limit = memory ? bytes_text(memory->bytes) + " a rank (" + memory->of + ")" : "-";
  std::cout << "\nlimit    " << limit << "\n";
  if (!memory) {
    std::cout << "verdict  - (no limit is known; see --memory and --gpu-memory)\n";
  } else if (plan.at("fits").get<bool>()) {
    std::cout << "verdict  fits: " << bytes_text(plan.at("needed_bytes").get<std::int64_t>()) << " of it is needed\n";
  } else {
    print_behind("verdict  ", 9, plan.at("misfit").get<std::string>());
  }
}

std::optional<RankMemory> memory_for(const muster::v1::JobSpec& spec, const PlanOptions& options, bool here) {
  const auto gpu_bytes = parsed_size("--gpu-memory", options.gpu_memory);
  if (const auto bytes = parsed_size("--memory", options.memory); bytes > 0) {
    const auto ranks = spec.resources().ranks_per_node();
    return RankMemory{bytes / ranks, false,
                      "--memory " + options.memory + (ranks > 1 ? " for " + std::to_string(ranks) + " ranks" : "")};
  }
  return memory_of_rank(spec, gpu_bytes, here);
}

int run_plan(Session& session, const PlanOptions& options) {
  auto request = read_request(session, options.job);
  if (!request) return kUsage;
  const bool here = is_loopback(session.config().address.value);
  JsonRows json(request->is_sweep ? JsonRows::Form::kArray : JsonRows::Form::kObject);
  std::set<std::string> shapes;
  int exit = kSuccess;
  for (auto& spec : request->specs) {
    if (!spec.has_recipe()) {
      throw Failure(kUsage, spec.name() +
                                " runs a command, and muster cannot see what a command needs; want a job "
                                "with [train]");
    }
    jobfile::fill_defaults(spec);
    const auto memory = memory_for(spec, options, here);
    if (!shapes.insert(shape_of(spec, memory)).second) continue;
    if (shapes.size() > kMostPlanned) {
      std::cerr << "muster plan: the first " << kMostPlanned << " kinds of jobs are planned; plan the others with "
                << "fewer values of --sweep\n";
      break;
    }
    auto plan = plan_of(spec, memory);
    if (plan.at("fits").is_boolean() && !plan.at("fits").get<bool>()) exit = kJobFailed;
    if (options.job.json) {
      plan["name"] = spec.name();
      plan["limit_of"] = memory ? Json(memory->of) : Json();
      json.add(with_version(plan));
    } else {
      if (shapes.size() > 1) std::cout << "\n";
      print_plan(spec.name(), plan, memory);
    }
  }
  if (options.job.json) json.end();
  return exit;
}

}  // namespace

void refuse_misfits(const Request& request, bool here) {
  if (base::find_program("muster-worker").empty()) return;
  std::set<std::string> shapes;
  for (auto spec : request.specs) {
    if (!spec.has_recipe()) continue;
    jobfile::fill_defaults(spec);
    const auto checks = spec.recipe().values().find(kCheckMemory);
    if (checks != spec.recipe().values().end() && !checks->second.flag()) continue;
    const auto memory = memory_of_rank(spec, 0, here);
    if (!memory || !shapes.insert(shape_of(spec, memory)).second) continue;
    if (shapes.size() > kMostPlanned) return;
    Json plan;
    try {
      plan = plan_of(spec, memory);
    } catch (const Failure&) {
      continue;
    }
    if (plan.at("fits").get<bool>()) continue;
    throw Failure(kUsage, spec.name() + ": " + plan.at("misfit").get<std::string>() +
                              "; nothing was submitted; --force submits it all the same");
  }
}

void define_plan(CLI::App& app, Session& session) {
  auto options = add_action<PlanOptions>(app, session, run_plan);
  options->job.command = "plan";
  app.add_option("file", options->job.file, "The job file, in TOML; - reads it from standard input")
      ->type_name("JOB.toml");
  app.add_option("--like", options->job.like, "Plan this job, not a job file")
      ->check(whole_number(1, INT64_MAX))
      ->type_name("JOB");
  app.add_option("--set", options->job.set, "Use this value, not the job file's; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_option("--sweep", options->job.sweep, "Plan a job for each value; if repeated, for each combination")
      ->type_name("KEY=VALUES")
      ->allow_extra_args(false);
  app.add_option("--gpu-memory", options->gpu_memory, "Memory of a GPU, for jobs with GPUs")->type_name("SIZE");
  app.add_option("--memory", options->memory, "Memory of a node, in place of what [slurm] or this machine gives")
      ->type_name("SIZE");
  app.add_flag("--json", options->job.json, "Print an object, or with --sweep an array; bytes are numbers");
}

}  // namespace cli
