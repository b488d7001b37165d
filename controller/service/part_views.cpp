#include "controller/service/part_views.h"

#include <nlohmann/json.hpp>

#include <algorithm>

#include "controller/core/core_text.h"
#include "spec/jobfile/job_keys.h"
#include "spec/key_names.h"
#include "spec/variables.h"

namespace service {
namespace {

bool has_share(const core::Attempt& attempt) {
  return attempt.share && attempt.state != core::AttemptState::kEnded;
}

}  // namespace

void fill_share(const core::Attempt& attempt, muster::v1::Attempt& out) {
  out.clear_gpus();
  if (!has_share(attempt)) return;
  for (const auto& gpu : attempt.share->gpus) out.add_gpus(gpu);
  out.set_cores(attempt.share->cores);
}

std::string gpus_of_rank(const core::Attempt& attempt, core::RankNumber rank, const executors::OwnMachine& machine) {
  if (!has_share(attempt) || attempt.ranks.empty()) return {};
  const auto& gpus = attempt.share->gpus;
  const auto each = gpus.size() / attempt.ranks.size();
  std::string text;
  for (auto i = rank * each; i < (rank + 1) * each; ++i) {
    const auto known = std::ranges::find(machine.gpus, gpus[i], &executors::OwnGpu::id);
    const bool by_number = known != machine.gpus.end() && !known->is_part();
    text += (text.empty() ? "" : ",") + (by_number ? std::to_string(known->number) : gpus[i]);
  }
  return text;
}

std::string gpu_note(const muster::v1::JobSpec& spec, const executors::OwnMachine& machine) {
  if (machine.gpus.empty() && !machine.hides_gpus) return {};
  const auto chosen = spec.env().find("CUDA_VISIBLE_DEVICES");
  if (chosen != spec.env().end()) {
    const bool sees_none = chosen->second.empty() || chosen->second == "-1";
    return sees_none
               ? ""
               : "Its own CUDA_VISIBLE_DEVICES chooses GPUs, so muster gives it none: other jobs may use the same. "
                 "Leave the variable out, and set " +
                     std::string(spec::key::kGpusOfRank) + ", to have GPUs alone";
  }
  if (jobfile::gpus_of_rank(spec) > 0) return {};
  const auto which = machine.gpus.empty() ? "GPUs" : core::count_text(machine.gpus.size(), "GPU");
  return "It asks for no GPU, so it sees none of the " + which + " of this machine: set " + spec::key::kGpusOfRank +
         ", if it is to use one";
}

namespace {

constexpr int kDeepest = 6;

void flatten(const nlohmann::json& value, const std::string& name, int depth,
             google::protobuf::Map<std::string, std::string>& out) {
  if (value.is_object() && !value.empty() && depth < kDeepest) {
    for (const auto& entry : value.items()) {
      flatten(entry.value(), name.empty() ? entry.key() : name + "." + entry.key(), depth + 1, out);
    }
    return;
  }
  out[name] = value.is_string() ? spec::shown_value(name.substr(name.rfind('.') + 1), value.get<std::string>())
                                : value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

google::protobuf::Map<std::string, std::string> settings_of(const std::string& config) {
  google::protobuf::Map<std::string, std::string> out;
  const auto json = nlohmann::json::parse(config, nullptr, false);
  if (json.is_object()) flatten(json, "", 0, out);
  return out;
}

void fill_checkpoints(const core::ProgramFacts& program, muster::v1::Job& out) {
  for (auto saved = program.checkpoints.rbegin(); saved != program.checkpoints.rend(); ++saved) {
    auto& told = *out.add_checkpoints();
    told.set_step(saved->step);
    told.set_attempt(saved->attempt);
    told.set_path(saved->path);
    if (saved->bytes >= 0) told.set_bytes(saved->bytes);
    told.set_saved_at(common::time_text(saved->at));
  }
}

std::string bad_lines_note(std::uint64_t lines, const std::string& first) {
  if (lines == 0) return {};
  return core::count_text(lines, "line") + " of its report files cannot be read, or only in part; the first: " + first;
}

std::string hang_limit_text(const ranks::LeastProgress& least) {
  const auto text =
      ranks::hang_limit_text(least.limit, least.limit_section, least.is_set) + ", in section " + least.limit_section;
  if (least.is_set) return text;
  return text + "; a hang ends the attempt after " + core::duration_text(least.ends_after) +
         " without progress and output";
}

std::string no_progress_note(const ranks::LeastProgress& least, core::Millis now) {
  const auto waited = now - least.since;
  if (waited < least.limit.time / 2) return {};
  const bool is_learned = !least.is_set && least.limit.learned_from > 0;
  return "rank " + std::to_string(least.rank) + ": no progress for " + core::duration_text(waited) + " in section " +
         least.section + (is_learned ? "; usual is at most " : "; its limit is ") +
         ranks::hang_limit_text(least.limit, least.limit_section, least.is_set) +
         (least.limit_section == least.section ? "" : " in section " + least.limit_section);
}

}  // namespace service
