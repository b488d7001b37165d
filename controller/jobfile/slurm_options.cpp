#include "jobfile/slurm_options.h"

#include <algorithm>
#include <array>

namespace jobfile {
namespace {

struct Owned {
  std::string_view option;
  std::string_view instead;  // begins with "use", or says why there is no other key
};

constexpr auto kOwned = std::to_array<Owned>({
    {"account", "use slurm.account"},
    {"array", "use [sweep] or muster submit --sweep"},
    {"chdir", "use working_folder"},
    {"clusters", "a controller works with one cluster: submit to the other cluster's controller"},
    {"comment", "muster finds its own jobs by it"},
    {"constraint", "use slurm.constraint"},
    {"cpus-per-task", "use resources.cpus_per_rank"},
    {"dependency", "use after, which names muster's jobs"},
    {"error", "a rank's log holds both: use slurm.output"},
    {"exclude", "use slurm.exclude"},
    {"exclusive", "use slurm.exclusive"},
    {"export", "use [env]"},
    {"export-file", "use [env]"},
    {"gid", "musterd submits as itself"},
    {"gpus", "use resources.gpus_per_rank"},
    {"gpus-per-node", "use resources.gpus_per_rank"},
    {"gpus-per-task", "use resources.gpus_per_rank"},
    {"gres", "use slurm.gres"},
    {"help", "see man sbatch"},
    {"hold", "use hold"},
    {"input", "ranks have no standard input: give the program a file name"},
    {"job-name", "use name"},
    {"kill-on-invalid-dep", "use after, which muster checks itself"},
    {"licenses", "use slurm.licenses"},
    {"mail-type", "use slurm.mail_type"},
    {"mail-user", "use slurm.mail_user"},
    {"mem", "use slurm.mem"},
    {"mem-per-cpu", "use slurm.mem_per_cpu"},
    {"mem-per-gpu", "use slurm.mem_per_gpu"},
    {"nice", "use slurm.nice"},
    {"no-requeue", "use [requeue]"},
    {"nodefile", "use slurm.nodelist"},
    {"nodelist", "use slurm.nodelist"},
    {"nodes", "use resources.nodes"},
    {"ntasks", "use resources.nodes and resources.ranks_per_node"},
    {"ntasks-per-core", "use resources.ranks_per_node and resources.cpus_per_rank"},
    {"ntasks-per-gpu", "use resources.gpus_per_rank"},
    {"ntasks-per-node", "use resources.ranks_per_node"},
    {"ntasks-per-socket", "use resources.ranks_per_node"},
    {"open-mode", "muster keeps a log of each attempt: see muster logs"},
    {"output", "use slurm.output"},
    {"parsable", "muster reads sbatch's answer itself"},
    {"partition", "use slurm.partition"},
    {"qos", "use slurm.qos"},
    {"quiet", "muster reads sbatch's answer itself"},
    {"requeue", "use [requeue]"},
    {"reservation", "use slurm.reservation"},
    {"signal", "use resources.stop_grace"},
    {"test-only", "use muster submit --check"},
    {"time", "use resources.time_limit"},
    {"uid", "musterd submits as itself"},
    {"usage", "see man sbatch"},
    {"verbose", "muster reads sbatch's answer itself"},
    {"version", "see sbatch --version"},
    {"wait", "use muster submit --wait"},
    {"wrap", "use command"},
});

bool is_option_name(std::string_view name) {
  const auto ok = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
  return name.size() > 1 && name.size() <= 64 && name[0] >= 'a' && name[0] <= 'z' && std::ranges::all_of(name, ok);
}

}  // namespace

std::string refuse_slurm_option(std::string_view name) {
  if (name.starts_with("-")) {
    name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
    return "want the option without its dashes: " + std::string(name);
  }
  if (name.size() == 1) return "want the option's long name, such as hint; see man sbatch";
  if (name.find('_') != std::string_view::npos) {
    std::string dashed(name);
    std::ranges::replace(dashed, '_', '-');
    return "want the option as sbatch spells it: " + dashed;
  }
  if (!is_option_name(name)) return "want the long name of an option of sbatch, such as hint";
  for (const auto& [option, instead] : kOwned) {
    if (option == name) return "muster sets this option itself; " + std::string(instead);
  }
  for (const auto& [option, instead] : kOwned) {
    if (option.starts_with(name)) {
      return "sbatch may read it as " + std::string(option) + ", which muster sets itself; " + std::string(instead);
    }
  }
  return {};
}

}  // namespace jobfile
