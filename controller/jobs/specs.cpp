#include "controller/jobs/specs.h"

#include <algorithm>
#include <stdexcept>

#include "proto/json/proto_json.h"
#include "spec/jobfile/spec.h"
#include "spec/log_pattern.h"

namespace jobs {
namespace {

constexpr core::Millis kShortGrace{2000};

std::runtime_error unreadable(core::JobId id, const std::exception& error) {
  return std::runtime_error("the stored spec of job " + std::to_string(id) + " cannot be read: " + error.what());
}

std::int64_t steps_of(const muster::v1::Recipe& recipe) {
  const auto steps = recipe.values().find("train.steps");
  return steps == recipe.values().end() ? 0 : steps->second.whole();
}

/// Drops the values that a stored spec does not have: see proto::from_json().
void drop_empty(google::protobuf::Map<std::string, muster::v1::Value>& values) {
  for (auto at = values.begin(); at != values.end();) {
    const auto& value = at->second;
    const bool is_empty =
        value.kind_case() == muster::v1::Value::KIND_NOT_SET || (value.has_text() && value.text().empty());
    at = is_empty ? values.erase(at) : std::next(at);
  }
}

/// True if a pattern of report.log finds series, or event files of TensorBoard are read: both come with steps.
bool tells_steps(const muster::v1::JobSpec& spec) {
  const auto& log = spec.report().log();
  return !spec.report().tensorboard().empty() || std::ranges::any_of(log, [](const auto& pattern) {
    return pattern.first == spec::kStepPattern || !spec::is_of_the_run(pattern.first);
  });
}

}  // namespace

std::string spec_to_text(const muster::v1::JobSpec& spec) {
  return proto::to_compact_text(spec);
}

core::RequeuePolicy requeue_policy(const muster::v1::JobSpec& spec) {
  const auto& r = spec.requeue();
  core::RequeuePolicy policy;
  policy.max_failed = r.max_failed();
  policy.max_rank_silent = r.max_rank_silent();
  policy.max_rank_hung = r.max_rank_hung();
  policy.max_preempted = r.max_preempted();
  policy.max_timed_out = r.max_timed_out();
  policy.max_node_failed = r.max_node_failed();
  policy.max_out_of_memory = r.max_out_of_memory();
  policy.max_controller_lost = r.max_controller_lost();
  // Jobs stored by an earlier muster say nothing of it.
  if (r.has_max_same_error()) policy.max_same_error = r.max_same_error();
  policy.backoff_initial = core::Millis(r.backoff_initial_ms());
  policy.backoff_max = core::Millis(r.backoff_max_ms());
  policy.healthy_after = core::Millis(r.healthy_after_ms());
  return policy;
}

core::JobSubmitted job_submitted(const muster::v1::JobSpec& spec, const std::string& user) {
  core::JobSubmitted event;
  event.name = spec.name();
  event.user = user;
  event.is_command = spec.has_command();
  event.world_size = static_cast<std::uint32_t>(jobfile::world_size(spec));
  event.time_limit = core::Millis(spec.resources().time_limit_ms());
  event.policy = requeue_policy(spec);
  event.held = spec.hold();
  for (const auto& text : spec.after()) {
    if (const auto dependency = core::parse_dependency(text)) event.after.push_back(*dependency);
  }
  event.sweep = {spec.sweep().sweep(), spec.sweep().index(), spec.sweep().parallel()};
  event.error_rules = core::kErrorRules;
  event.tells_steps = tells_steps(spec);
  return event;
}

core::Millis stop_grace(const muster::v1::JobSpec& spec, bool save) {
  const core::Millis grace(spec.resources().stop_grace_ms());
  return save ? grace : std::min(grace, kShortGrace);
}

std::filesystem::path checkpoint_folder(const muster::v1::JobSpec& spec, core::JobId job,
                                        const common::DataFolder& data) {
  return spec.checkpoint().folder().empty() ? data.checkpoints(job) : std::filesystem::path(spec.checkpoint().folder());
}

std::string_view object_in(std::string_view spec, const std::string& name) {
  const auto mark = "\"" + name + "\":{";
  const auto found = spec.find(mark);
  if (found == std::string_view::npos) return {};
  spec.remove_prefix(found + mark.size() - 1);
  int depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < spec.size(); ++i) {
    const char c = spec[i];
    if (in_text) {
      if (c == '\\') ++i;
      if (c == '"') in_text = false;
    } else if (c == '"') {
      in_text = true;
    } else if (c == '{') {
      ++depth;
    } else if (c == '}' && --depth == 0) {
      return spec.substr(0, i + 1);
    }
  }
  return {};
}

SpecPtr SpecCache::known(core::JobId id) {
  std::lock_guard lock(mutex_);
  const auto found = specs_.find(id);
  return found == specs_.end() ? nullptr : found->second;
}

std::optional<SpecCache::Headline> SpecCache::headline(core::JobId id) {
  Headline line;
  if (const auto spec = known(id)) {
    line.sweep = spec->sweep();
    line.steps = steps_of(spec->recipe());
    return line;
  }
  const auto text = store_.spec_json(id);
  if (!text) return std::nullopt;
  try {
    if (const auto sweep = object_in(*text, "sweep"); !sweep.empty()) {
      proto::from_json(nlohmann::ordered_json::parse(sweep), line.sweep);
    }
    if (const auto train = object_in(*text, "train"); !train.empty()) {
      const auto values = nlohmann::json::parse(train);
      const auto steps = values.find("steps");
      if (steps != values.end() && steps->is_number_integer()) line.steps = steps->get<std::int64_t>();
    }
  } catch (const std::exception& e) {
    throw unreadable(id, e);
  }
  return line;
}

SpecPtr SpecCache::get(core::JobId id) {
  if (auto spec = known(id)) return spec;
  const auto text = store_.spec_json(id);
  if (!text) return nullptr;
  auto spec = std::make_shared<muster::v1::JobSpec>();
  try {
    proto::from_json(nlohmann::ordered_json::parse(*text), *spec);
  } catch (const std::exception& e) {
    throw unreadable(id, e);
  }
  put(id, spec);
  return spec;
}

void SpecCache::keep(core::JobId id, muster::v1::JobSpec spec) {
  if (!is_kept(spec)) return;
  if (spec.has_recipe()) drop_empty(*spec.mutable_recipe()->mutable_values());
  put(id, std::make_shared<muster::v1::JobSpec>(std::move(spec)));
}

void SpecCache::put(core::JobId id, SpecPtr spec) {
  std::lock_guard lock(mutex_);
  if (specs_.emplace(id, std::move(spec)).second && !open_.contains(id)) order_.push_back(id);
  drop_some();
}

void SpecCache::follow(const core::Job& job) {
  std::lock_guard lock(mutex_);
  const bool was_open = open_.contains(job.id);
  const bool is_open = !core::is_ended(job.state);
  const bool is_there = specs_.contains(job.id);
  if (is_open && !was_open) {
    open_.insert(job.id);
    if (is_there) std::erase(order_, job.id);
  } else if (!is_open && was_open) {
    open_.erase(job.id);
    if (is_there) order_.push_back(job.id);
  }
  if (job.removed_at && specs_.erase(job.id) > 0) std::erase(order_, job.id);
  drop_some();
}

void SpecCache::drop_some() {
  while (order_.size() > kJobs) {
    specs_.erase(order_.front());
    order_.pop_front();
  }
}

}  // namespace jobs
