#pragma once

#include <vector>

#include "cli/client.h"

namespace cli {

struct JobQuery {
  std::vector<std::string> states;  // empty: all. "held": those under a hold, whatever else they are
  std::string sweep;                // empty: of every sweep and of none
  std::uint32_t limit = 100;
  std::vector<std::int64_t> ids = {};  // empty: any
};

struct Listing {
  std::vector<muster::v1::Job> jobs;  // newest first
  std::int64_t total = 0;             // that match, listed or not
};

/// Page by page. A failed page gives its status.
grpc::Status read_jobs(Client& client, const JobQuery& query, Listing* listing);

/// What to say of a sweep without a job.
Failure no_such_sweep(const std::string& sweep);

/// Every job of a sweep, in the order of their index. Throws a Failure where there is none.
std::vector<muster::v1::Job> jobs_of_sweep(Client& client, const std::string& sweep);

/// What Slurm, the lines before the ranks and their tasks wrote in the newest attempt: beside the ranks' logs. Empty
/// where there is none, or it is not to be found from the job alone.
std::string slurm_log(const muster::v1::Job& job);

/// The word for a job's state: "held". A controller of before knows none, and its state is the word.
std::string status_of(const muster::v1::Job& job);

/// "learning_rate=1e-4 seed=0": the keys' last parts where they tell them apart.
std::string settings_text(const muster::v1::SweepElement& element);

}  // namespace cli
