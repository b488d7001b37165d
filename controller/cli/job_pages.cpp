#include "cli/job_pages.h"

#include <algorithm>
#include <map>
#include <set>

#include "cli/text.h"
#include "jobfile/job_keys.h"
#include "jobfile/sweep.h"

namespace cli {
namespace {

constexpr std::uint32_t kPage = 1000;
constexpr const char* kHeld = "held";
constexpr const char* kHoldable[]{"pending", "queued", "running", "stopping", "waiting"};

bool asks_for(const JobQuery& query, const std::string& state) {
  return std::ranges::find(query.states, state) != query.states.end();
}

/// The controller has no state "held". So this reads all jobs in states that can be held, and filters them.
grpc::Status read_held(Client& client, const JobQuery& query, Listing* listing) {
  JobQuery wider = query;
  std::erase(wider.states, kHeld);
  for (const char* state : kHoldable) {
    if (!asks_for(query, state)) wider.states.emplace_back(state);
  }
  wider.limit = UINT32_MAX;
  Listing all;
  if (const auto status = read_jobs(client, wider, &all); !status.ok()) return status;
  for (auto& job : all.jobs) {
    if (job.held_by().empty() && !asks_for(query, job.state())) continue;
    ++listing->total;
    if (listing->jobs.size() < query.limit) listing->jobs.push_back(std::move(job));
  }
  return grpc::Status::OK;
}

}  // namespace

grpc::Status read_jobs(Client& client, const JobQuery& query, Listing* listing) {
  if (asks_for(query, kHeld)) return read_held(client, query, listing);
  muster::v1::ListRequest request;
  for (const auto& state : query.states) request.add_states(state);
  request.set_sweep(query.sweep);
  request.mutable_job_ids()->Assign(query.ids.begin(), query.ids.end());
  while (listing->jobs.size() < query.limit) {
    request.set_limit(std::min<std::uint32_t>(kPage, query.limit - static_cast<std::uint32_t>(listing->jobs.size())));
    muster::v1::ListResponse response;
    const auto status = client.try_call(&JobStub::List, request, &response);
    if (!status.ok()) return status;
    if (request.before_id() == 0) listing->total = response.total();
    for (auto& job : *response.mutable_jobs()) listing->jobs.push_back(std::move(job));
    if (static_cast<std::uint32_t>(response.jobs_size()) < request.limit()) break;
    request.set_before_id(listing->jobs.back().id());
  }
  return grpc::Status::OK;
}

Listing list_jobs(Client& client, const JobQuery& query) {
  Listing listing;
  if (const auto status = read_jobs(client, query, &listing); !status.ok()) throw client.failure(status);
  return listing;
}

Failure no_such_sweep(const std::string& sweep) {
  return {kNotFound, "there is no sweep " + sweep + "; muster list shows the sweeps"};
}

std::vector<muster::v1::Job> jobs_of_sweep(Client& client, const std::string& sweep) {
  auto listing = list_jobs(client, {{}, sweep, jobfile::kMostSweepJobs});
  if (listing.jobs.empty()) throw no_such_sweep(sweep);
  std::ranges::sort(listing.jobs, [](const auto& a, const auto& b) { return a.id() < b.id(); });
  return std::move(listing.jobs);
}

std::string status_of(const muster::v1::Job& job) {
  return job.status().empty() ? job.state() : job.status();
}

std::string settings_text(const muster::v1::SweepElement& element) {
  const std::map<std::string, std::string> settings(element.settings().begin(), element.settings().end());
  std::multiset<std::string> leaves;
  for (const auto& [key, value] : settings) leaves.insert(jobfile::leaf_of(key));
  std::string text;
  for (const auto& [key, value] : settings) {
    const auto leaf = jobfile::leaf_of(key);
    append(text, (leaves.count(leaf) == 1 ? leaf : key) + "=" + value, " ");
  }
  return text;
}

}  // namespace cli
