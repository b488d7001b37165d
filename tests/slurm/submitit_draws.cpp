#include <algorithm>
#include <array>
#include <functional>
#include <random>

#include "tests/slurm/submitit_cases.h"

namespace slurm {
namespace {

/// Draws that are the same on every machine; the standard's distributions are not.
class Dice {
 public:
  explicit Dice(std::uint32_t seed) : engine_(seed) {}
  std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(engine_() % limit); }
  std::int64_t between(std::int64_t first, std::int64_t last) {
    return first + below(static_cast<std::uint32_t>(last - first + 1));
  }
  bool one_in(std::uint32_t count) { return below(count) == 0; }

 private:
  std::mt19937 engine_;
};

constexpr std::array<const char*, 18> kPieces = {"a",  "node7", "x=1", " ", "'",  "\"", "$HOME", "`id`",  "#",
                                                 "\\", "%j",    "é",   "&", "\n", "\t", "*",     "[1-3]", ","};

std::string drawn_text(Dice& dice) {
  std::string text;
  for (auto pieces = dice.between(1, 5); pieces > 0; --pieces) text += kPieces[dice.below(kPieces.size())];
  return text;
}

SubmititList drawn_lines(Dice& dice) {
  SubmititList lines;
  for (auto count = dice.between(0, 3); count > 0; --count) lines.push_back(drawn_text(dice));
  return lines;
}

SubmititValue drawn_number(Dice& dice) {
  switch (dice.below(4)) {
    case 0:
      return static_cast<double>(dice.between(1, 4000)) / 16;
    case 1:
      return static_cast<double>(dice.between(1, 100)) / 10;
    default:
      return dice.between(0, 600);
  }
}

SubmititValue drawn_scalar(Dice& dice) {
  switch (dice.below(6)) {
    case 0:
      return dice.one_in(2);
    case 1:
      return dice.between(-10, 1'000'000);
    case 2:
      return drawn_number(dice);
    case 3:
      return SubmititValue();
    default:
      return drawn_text(dice);
  }
}

SubmititValue drawn_dictionary(Dice& dice) {
  constexpr std::array<const char*, 10> kNames = {"mail-user", "mail_user", "requeue", "nice", "array",
                                                  "output",    "job_name",  "mem",     "gpus", "Big"};
  SubmititDict dictionary;
  for (auto count = dice.between(0, 4); count > 0; --count) {
    const std::string name = kNames[dice.below(kNames.size())];
    const bool known = std::ranges::any_of(dictionary, [&](const auto& entry) { return entry.first == name; });
    if (!known) dictionary.emplace_back(name, drawn_scalar(dice));
  }
  return dictionary;
}

using Draw = std::function<SubmititValue(Dice&)>;

/// Every parameter, with a value of the kind that users pass.
std::vector<std::pair<std::string, Draw>> parameters() {
  // submitit multiplies nodes and tasks after it has written the script.
  const Draw whole = [](Dice& dice) { return SubmititValue(dice.between(1, 600)); };
  const Draw text = [](Dice& dice) { return SubmititValue(drawn_text(dice)); };
  const Draw flag = [](Dice& dice) { return SubmititValue(dice.one_in(2)); };
  const Draw lines = [](Dice& dice) { return SubmititValue(drawn_lines(dice)); };
  const Draw number = [](Dice& dice) { return drawn_number(dice); };
  const Draw scalar = [](Dice& dice) { return drawn_scalar(dice); };
  std::vector<std::pair<std::string, Draw>> all = {
      {"name", text},
      {"timeout_min", whole},
      {"mem_gb", number},
      {"nodes", whole},
      {"cpus_per_task", whole},
      {"gpus_per_node", whole},
      {"tasks_per_node", whole},
      {"stderr_to_stdout", flag},
      {"slurm_setup", lines},
      {"slurm_teardown", lines},
      {"slurm_srun_args", lines},
      {"slurm_use_srun", flag},
      {"slurm_stderr_to_stdout", flag},
      {"slurm_array_parallelism", [](Dice& dice) { return SubmititValue(dice.between(1, 400)); }},
      {"slurm_additional_parameters", drawn_dictionary},
      {"slurm_mem_gb", number},
      {"slurm_signal_delay_s", whole},
      {"slurm_num_gpus", whole},
      {"slurm_nodes", whole},
  };
  for (const auto* name :
       {"partition", "qos", "account", "constraint", "gres", "exclude", "nodelist", "mem", "comment", "dependency",
        "mail_user", "exclusive", "wckey", "time", "job_name", "cpus_per_gpu", "gpus_per_task", "mem_per_cpu"}) {
    all.emplace_back(std::string("slurm_") + name, scalar);
  }
  return all;
}

std::uint64_t drawn_tasks(Dice& dice) {
  if (dice.one_in(2)) return 1;
  return static_cast<std::uint64_t>(dice.one_in(10) ? dice.between(2, 300) : dice.between(2, 12));
}

}  // namespace

std::vector<SubmititCase> submitit_draws(std::uint32_t seed, std::size_t count) {
  Dice dice(seed);
  const auto known = parameters();
  std::vector<SubmititCase> draws;
  for (std::size_t i = 0; i < count; ++i) {
    SubmititCase draw;
    draw.what = "draw " + std::to_string(i) + " of seed " + std::to_string(seed);
    draw.submissions = drawn_tasks(dice);
    draw.calls.resize(static_cast<std::size_t>(dice.between(1, 3)));
    for (auto left = dice.between(1, 8); left > 0; --left) {
      const auto& [name, value] = known[dice.below(static_cast<std::uint32_t>(known.size()))];
      auto& call = draw.calls[dice.below(static_cast<std::uint32_t>(draw.calls.size()))];
      // A Python call cannot pass the same name twice.
      if (std::ranges::none_of(call, [&](const auto& entry) { return entry.first == name; })) {
        call.emplace_back(name, value(dice));
      }
    }
    draws.push_back(std::move(draw));
  }
  return draws;
}

}  // namespace slurm
