#include "service/submission.h"

#include <openssl/rand.h>

#include <array>
#include <map>
#include <stdexcept>

#include "actions/launch_plan.h"
#include "jobfile/spec.h"
#include "jobs/spec_values.h"
#include "service/requests.h"

namespace service {
namespace {

constexpr std::size_t kMostRequestId = 64;
constexpr std::size_t kMostSpecBytes = 1 << 20;

std::string random_request_id() {
  std::array<unsigned char, 16> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) throw std::runtime_error("no random numbers");
  std::string out = "own-";
  for (const unsigned char b : bytes) {
    out += static_cast<char>('a' + (b >> 4));
    out += static_cast<char>('a' + (b & 15));
  }
  return out;
}

}  // namespace

base::Outcome<muster::v1::SubmitResponse> Submission::submit(const muster::v1::SubmitRequest& request) {
  if (request.request_id().size() > kMostRequestId) {
    return refuse(base::Refusal::Kind::kInvalid, "request_id: want at most 64 characters");
  }
  muster::v1::JobSpec spec = request.spec();
  spec.clear_sweep();
  const auto user = user_or_unknown(request.user());
  if (const auto refusal = unless_known(parts_.partitions.admit(spec, user), request.request_id())) return *refusal;
  if (const auto problems = problems_of(spec); !problems.empty())
    return refuse(base::Refusal::Kind::kInvalid, problems);
  std::string text = jobs::spec_to_text(spec);
  if (text.size() > kMostSpecBytes) return refuse(base::Refusal::Kind::kLimit, "the job file is larger than 1 MiB");
  const auto id = request.request_id().empty() ? random_request_id() : request.request_id();
  auto turn = parts_.partitions.take_turn({{parts_.partitions.place_of(spec), 1}}, user);
  if (const auto refusal = unless_known(std::move(turn.refusal), request.request_id())) return *refusal;
  const auto outcome = parts_.event_log.submit({jobs::job_submitted(spec, user), id, std::move(text)});
  if (!outcome.ok()) return outcome.refusal();
  muster::v1::SubmitResponse response;
  response.set_job_id(outcome.value().id);
  response.set_already_submitted(outcome.value().already);
  return response;
}

std::optional<base::Refusal> Submission::unless_known(std::optional<base::Refusal> refusal,
                                                      const std::string& request_id) {
  if (!refusal || request_id.empty()) return refusal;
  try {
    return parts_.store.find_request(request_id) ? std::nullopt : refusal;
  } catch (const std::exception&) {
    return refusal;
  }
}

std::string Submission::problems_of(muster::v1::JobSpec& spec) const {
  jobfile::fill_defaults(spec);
  std::string problems;
  const auto add = [&](const std::string& problem) { problems += (problems.empty() ? "" : "\n") + problem; };
  // What "auto" is here is known by now.
  auto judged = spec;
  if (spec.executor() == "auto") judged.set_executor(parts_.executor.has_queue("auto") ? "slurm" : "local");
  for (const auto& problem :
       jobfile::validate(judged, parts_.check_folders ? jobfile::FileChecks::kLook : jobfile::FileChecks::kSkip)) {
    add(jobfile::to_string(problem));
  }
  for (auto& unfit : parts_.executor.unfit(actions::launch_request(spec, {}, {parts_.data, {}, {}, {}}))) {
    add(jobfile::to_string({unfit.field, unfit.value, unfit.wanted, unfit.remedy, {}}));
  }
  if (spec.executor() == "debug") {
    add("executor \"debug\": it runs where muster submit runs, without a controller; use \"auto\", \"slurm\" or "
        "\"local\"");
  }
  const auto& folder = spec.checkpoint().folder();
  if (const auto id = folder.empty() ? std::nullopt : parts_.data.job_of(folder)) {
    const auto other = parts_.event_log.job(*id);
    if (other != nullptr && other->removed_at) {
      add("checkpoint.folder \"" + folder + "\": it is in the folder of job " + std::to_string(*id) +
          ", which is deleted: " + core::removed_text(*other) + "; choose another one");
    }
  }
  for (const auto& text : spec.after()) {
    const auto dependency = core::parse_dependency(text);
    if (!dependency) {
      add("after \"" + text + "\": want succeeded:<job>, failed:<job> or ended:<job>");
    } else if (const auto other = parts_.event_log.job(dependency->job); other == nullptr) {
      add("after \"" + text + "\": there is no job " + std::to_string(dependency->job));
    } else if (other->removed_at) {
      add("after \"" + text + "\": " + core::removed_text(*other) + ", and its files with it; leave it out");
    }
  }
  return problems;
}

base::Outcome<muster::v1::SubmitSweepResponse> Submission::submit_sweep(const muster::v1::SubmitSweepRequest& request) {
  if (request.request_id().size() > kMostRequestId) {
    return refuse(base::Refusal::Kind::kInvalid, "request_id: want at most 64 characters");
  }
  if (request.specs().empty()) return refuse(base::Refusal::Kind::kInvalid, "specs: a sweep of no job at all");
  if (request.specs_size() > kMostSweep) {
    return refuse(base::Refusal::Kind::kLimit, "specs: a sweep of " + std::to_string(request.specs_size()) +
                                                   " jobs; at most " + std::to_string(kMostSweep) +
                                                   ", submit it in parts");
  }
  const auto id = request.request_id().empty() ? random_request_id() : request.request_id();
  const auto user = user_or_unknown(request.user());
  std::vector<jobs::EventLog::Submission> submissions;
  std::map<std::string, std::uint32_t> places;
  for (int i = 0; i < request.specs_size(); ++i) {
    muster::v1::JobSpec spec = request.specs(i);
    name_in_sweep(spec, i, request.parallel());
    if (!spec.has_recipe() && spec.environment() != "clean" && spec.submitted_env().empty()) {
      *spec.mutable_submitted_env() = request.submitted_env();
    }
    if (auto refusal = unless_known(parts_.partitions.admit(spec, user), request.request_id())) {
      return refuse(refusal->kind, "job " + std::to_string(i) + " of the sweep: " + refusal->text);
    }
    ++places[parts_.partitions.place_of(spec)];
    if (const auto problems = problems_of(spec); !problems.empty()) {
      return refuse(base::Refusal::Kind::kInvalid, "job " + std::to_string(i) + " of the sweep: " + problems);
    }
    std::string text = jobs::spec_to_text(spec);
    if (text.size() > kMostSpecBytes) return refuse(base::Refusal::Kind::kLimit, "the job file is larger than 1 MiB");
    submissions.push_back({jobs::job_submitted(spec, user), id, std::move(text)});
  }
  auto turn = parts_.partitions.take_turn(places, user);
  if (const auto refusal = unless_known(std::move(turn.refusal), request.request_id())) return *refusal;
  const auto outcome = parts_.event_log.submit_sweep(std::move(submissions));
  if (!outcome.ok()) return outcome.refusal();
  muster::v1::SubmitSweepResponse response;
  const auto first = outcome.value().id;
  response.set_sweep(jobs::sweep_name(first));
  response.set_already_submitted(outcome.value().already);
  if (!outcome.value().already) {
    for (int i = 0; i < request.specs_size(); ++i) response.add_job_ids(first + i);
    return response;
  }
  const auto job = parts_.event_log.job(first);
  if (job == nullptr || job->sweep.sweep != response.sweep()) {
    return refuse(base::Refusal::Kind::kInvalid, "request_id: it was used for job " + std::to_string(first) +
                                                     ", which is no sweep; choose another one");
  }
  for (const auto left : jobs_of(parts_.store, response.sweep())) response.add_job_ids(left);
  if (response.job_ids().empty()) {
    return refuse(base::Refusal::Kind::kInvalid,
                  "request_id: it was used for sweep " + response.sweep() +
                      ", whose jobs are all removed; choose another one to submit it again");
  }
  return response;
}

}  // namespace service
