#pragma once

#include <vector>

#include "cli/client.h"

namespace cli {

struct JobQuery {
  std::vector<std::string> states;  // empty: all; "held": held jobs in any state
  std::string sweep;                // empty: jobs of any sweep and of none
  std::uint32_t limit = 100;
  std::vector<std::int64_t> ids = {};  // empty: any
};

struct Listing {
  std::vector<muster::v1::Job> jobs;  // newest first
  std::int64_t total = 0;             // how many jobs match, including those not listed
};

/// Reads the jobs page by page. If a page fails, returns its status.
grpc::Status read_jobs(Client& client, const JobQuery& query, Listing* listing);

/// As read_jobs(), but throws a Failure if a page fails.
Listing list_jobs(Client& client, const JobQuery& query);

/// The Failure for a sweep that has no job.
Failure no_such_sweep(const std::string& sweep);

/// The jobs of a sweep in the order of their index. Throws a Failure if there is none.
std::vector<muster::v1::Job> jobs_of_sweep(Client& client, const std::string& sweep);

/// The word for the job's status, such as "held". An older controller sends none; then it is the state.
std::string status_of(const muster::v1::Job& job);

/// "learning_rate=1e-4 seed=0". A key is cut to its last part if no other key has the same last part.
std::string settings_text(const muster::v1::SweepElement& element);

}  // namespace cli
