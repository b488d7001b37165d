#include <algorithm>
#include <array>
#include <optional>

#include "base/numbers.h"
#include "base/words.h"
#include "spec/jobfile/validate.h"
#include "spec/variables.h"

namespace jobfile {
namespace {

namespace names = spec::variable;

using muster::v1::JobSpec;

constexpr std::size_t kMostVariables = 1024;
constexpr std::size_t kMostSubmittedBytes = std::size_t{64} << 10;
constexpr const char* kWantName = "want a variable's name: letters, digits and \"_\", no digit first";
constexpr const char* kWantSecret = "want the value itself: muster shows this in the place of a secret";
constexpr int kMostRankNumber = 1 << 20;  // the worker's limit
constexpr int kMostPort = 65535;

std::optional<int> number_of(const std::string& text, int low, int high) {
  const auto value = base::whole_number<int>(text);
  return value && *value >= low && *value <= high ? value : std::nullopt;
}

/// Checks the variables that tell a process its rank, by the rules of their readers. muster-agent reads those of any
/// job on Slurm. muster-worker reads those of a recipe. Any other program gets the user's values unchecked.
class RankVariables {
 public:
  RankVariables(const JobSpec& spec, Findings& findings)
      : spec_(spec),
        findings_(findings),
        ranks_(static_cast<int>(std::min<std::uint64_t>(world_size(spec), kMostRanks))),
        per_node_(static_cast<int>(std::clamp<std::uint64_t>(spec.resources().ranks_per_node(), 1, kMostRanks))) {}

  void check() {
    // "auto" may become either executor. So it is refused nothing that only one of them refuses.
    const bool local = spec_.executor() == "local" || spec_.executor() == "debug";
    const bool read_by_task = spec_.executor() == "slurm", read_by_worker = spec_.has_recipe();
    if (!read_by_task && !read_by_worker) return;
    if (!are_numbers(read_by_worker) || !port_is_one(read_by_worker && local)) return;
    if (read_by_worker && emptied("RANK")) {
      if (local && ranks_ > 1) refuse("RANK", "want a whole number from 0", kLeaveOut);
      return;
    }
    if (read_by_worker && emptied("WORLD_SIZE")) {
      refuse("WORLD_SIZE", "want a whole number from 1", kLeaveOut);
      return;
    }
    if (given("RANK") && (!rank_has_company(read_by_task) || !rank_is_alone())) return;
    // Without RANK muster-agent asks Slurm, and only the worker reads the other variables.
    if (read_by_worker || given("RANK")) check_each_rank(read_by_worker);
  }

 private:
  struct Place {
    int rank = 0, world = 0, local = 0, local_world = 0, node = 0;
  };

  const std::string* text(const char* name) const {
    const auto found = spec_.env().find(name);
    return found == spec_.env().end() ? nullptr : &found->second;
  }
  /// True if the user has set the variable to a text that is not empty.
  bool given(const char* name) const {
    const auto* value = text(name);
    return value != nullptr && !value->empty();
  }
  bool emptied(const char* name) const { return text(name) != nullptr && !given(name); }
  int number(const char* name, int otherwise) const {
    return given(name) ? number_of(*text(name), 0, kMostRankNumber).value_or(otherwise) : otherwise;
  }
  bool refuse(const char* name, std::string want, std::string remedy, std::vector<std::string> related = {}) {
    findings_.add_value("env." + std::string(name), text(name)->substr(0, kLongestValue), std::move(want),
                        std::move(remedy), std::move(related));
    return false;
  }

  bool are_numbers(bool by_worker) {
    const bool all = by_worker || given("RANK");
    bool fine = true;
    for (const auto& [name, low] :
         {std::pair("RANK", 0), {"WORLD_SIZE", 1}, {"LOCAL_RANK", 0}, {"LOCAL_WORLD_SIZE", 1}, {"NODE_RANK", 0}}) {
      if (!all || !given(name) || number_of(*text(name), low, kMostRankNumber)) continue;
      fine = refuse(name, "want a whole number from " + std::to_string(low), kLeaveOut);
    }
    return fine;
  }
  /// Checks MASTER_PORT. It is read only if there is an address: the user's or, on one machine, muster's.
  bool port_is_one(bool address_is_there) {
    const bool read = given(names::kMasterAddress) || (address_is_there && text(names::kMasterAddress) == nullptr);
    if (!read || !given(names::kMasterPort) || number_of(*text(names::kMasterPort), 1, kMostPort)) return true;
    return refuse(names::kMasterPort, "want a port from 1 to 65535", "leave it out: muster chooses one",
                  {"env.MASTER_ADDR"});
  }
  bool rank_has_company(bool read_by_task) {
    if (!read_by_task || given("WORLD_SIZE")) return true;
    return refuse("RANK", "want WORLD_SIZE as well, or neither", kLeaveOut, {"env.WORLD_SIZE"});
  }
  bool rank_is_alone() {
    if (ranks_ == 1) return true;
    return refuse("RANK", "want it left out: all " + std::to_string(ranks_) + " ranks would have the same RANK",
                  "muster sets it for each", {"resources.nodes", "resources.ranks_per_node"});
  }

  /// The rank's place as the reader computes it. The user's variables override the rank's own.
  Place place_of(int rank, bool by_worker) const {
    Place at;
    at.rank = number("RANK", rank);
    at.world = number("WORLD_SIZE", ranks_);
    at.local_world =
        number("LOCAL_WORLD_SIZE", by_worker && text("LOCAL_WORLD_SIZE") == nullptr ? per_node_ : at.world);
    const bool own = by_worker && text("LOCAL_RANK") == nullptr;
    at.local = number("LOCAL_RANK", own ? rank % per_node_ : at.rank % at.local_world);
    at.node =
        number("NODE_RANK", by_worker && text("NODE_RANK") == nullptr ? rank / per_node_ : at.rank / at.local_world);
    return at;
  }

  void check_each_rank(bool by_worker) {
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto at = place_of(rank, by_worker);
      const auto said = [](int value) { return std::to_string(value); };
      if (at.rank >= at.world) {
        blame({"WORLD_SIZE", "RANK"}, "want RANK below WORLD_SIZE, not " + said(at.rank) + " of " + said(at.world));
      } else if (at.local_world > at.world) {
        blame({"LOCAL_WORLD_SIZE", "WORLD_SIZE"},
              "want LOCAL_WORLD_SIZE at most WORLD_SIZE, not " + said(at.local_world) + " of " + said(at.world));
      } else if (at.local >= at.local_world) {
        blame({"LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "RANK"},
              "want LOCAL_RANK below LOCAL_WORLD_SIZE, not " + said(at.local) + " of " + said(at.local_world));
      } else if (at.local_world == at.world && at.node != 0) {
        blame({"NODE_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE"},
              "want NODE_RANK 0 where all " + said(at.world) + " ranks are on one node, not " + said(at.node));
      } else {
        continue;
      }
      return;
    }
  }
  /// Reports the first of these variables that the user has set. The others are related to the problem.
  void blame(std::initializer_list<const char*> names, const std::string& want) {
    std::vector<std::string> related{"resources.nodes", "resources.ranks_per_node"};
    const char* first = nullptr;
    for (const char* name : names) {
      if (!given(name)) continue;
      if (first == nullptr) {
        first = name;
      } else {
        related.push_back("env." + std::string(name));
      }
    }
    if (first != nullptr) refuse(first, want, kLeaveOut, related);
  }

  static constexpr const char* kLeaveOut = "leave it out: muster sets it for each rank";
  const JobSpec& spec_;
  Findings& findings_;
  const int ranks_, per_node_;
};

std::string kibibytes(std::size_t bytes) {
  return std::to_string((bytes + 1023) / 1024) + " KiB";
}

void check_size(const JobSpec& spec, Findings& findings) {
  std::size_t all = 0, most = 0;
  std::string largest;
  for (const auto& [name, value] : spec.submitted_env()) {
    all += name.size() + value.size();
    if (value.size() < most || (value.size() == most && !largest.empty() && name > largest)) continue;
    most = value.size(), largest = name;
  }
  if (all <= kMostSubmittedBytes) return;
  findings.add("environment",
               "want at most " + kibibytes(kMostSubmittedBytes) + " of variables from the submitter, not " +
                   kibibytes(all) + " (" + largest + " alone is " + kibibytes(most) + ")",
               "shorten " + largest + ", or set environment = \"clean\" and in [env] what the program needs");
}

/// Checks the variables that the job took from its submitter.
void check_submitted(const JobSpec& spec, Findings& findings) {
  if (spec.has_recipe() && spec.environment() == "submit") {
    findings.add("environment", "want clean: a recipe runs muster-worker, which needs no variables of its submitter",
                 "leave it out; [env] sets variables for its ranks");
    return;
  }
  if (spec.submitted_env().empty()) return;
  if (spec.environment() == "clean") {
    findings.add_value("submitted_env", std::to_string(spec.submitted_env_size()) + " variables",
                       "want none with environment = \"clean\"", "leave the table out, or set environment = \"submit\"",
                       {"environment"});
    return;
  }
  for (const auto& [name, value] : sorted(spec.submitted_env())) {
    const auto key = "submitted_env." + name;
    if (!is_variable_name(name)) {
      findings.add_value(key, name, kWantName, "rename it");
    } else if (!base::is_utf8(value) || value.find('\0') != std::string::npos) {
      findings.add("environment", "want variables in UTF-8 from the submitter; " + name + " is not",
                   "unset " + name + " where muster submit runs, or set environment = \"clean\"");
    } else if (value == spec::kMask) {
      findings.add_value(key, value, kWantSecret,
                         "remove the table [submitted_env], so that muster submit takes the variables again");
    }
  }
  check_size(spec, findings);
}

}  // namespace

bool is_variable_name(const std::string& name) {
  const auto ok = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && !(name[0] >= '0' && name[0] <= '9') && std::all_of(name.begin(), name.end(), ok);
}

bool is_set_by_muster(const JobSpec& spec, std::string_view variable) {
  constexpr std::array kAlways{names::kController, names::kControllerFile,  names::kRankToken, names::kJobId,
                               names::kAttempt,    names::kAttemptFolder,   names::kNodes,     names::kNodeList,
                               names::kStop,       names::kCheckpointFolder};
  return std::ranges::find(kAlways, variable) != kAlways.end() || (spec.has_recipe() && variable == names::kRunFile);
}

void check_variables(const JobSpec& spec, Findings& findings) {
  if (findings.too_many("env", spec.env().size(), kMostVariables, "variables",
                        "put them into a file that the program reads")) {
    return;
  }
  for (const auto& [name, value] : sorted(spec.env())) {
    if (!is_variable_name(name)) {
      findings.add_value("env." + name, name, kWantName, "rename it");
    } else if (!is_c_text(value)) {
      findings.add_value("env." + name, value.substr(0, kLongestValue), "want a text without NUL, under 128 KiB",
                         "put it into a file that the program reads");
    } else if (value == spec::kMask) {
      findings.add_value("env." + name, value, kWantSecret, "give it with muster submit --env " + name);
    } else if (is_set_by_muster(spec, name)) {
      const bool folder = name == names::kCheckpointFolder;
      findings.add_value("env." + name, value.substr(0, kLongestValue),
                         "want another name: muster sets this one itself",
                         folder ? "set checkpoint.folder, or rename the variable" : "leave it out, or rename it");
    }
  }
  RankVariables(spec, findings).check();
  check_submitted(spec, findings);
}

}  // namespace jobfile
