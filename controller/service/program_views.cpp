#include "controller/service/program_views.h"

#include <nlohmann/json.hpp>

#include "controller/core/text.h"
#include "spec/secret_variables.h"

namespace service {
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
