#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "spec/jobfile/spec.h"
#include "spec/variables.h"

namespace jobfile {

/// A submission of a program, in JSON. docs/api.md describes its members.
///
/// The job is a job file's text or an object of the same tables. The job file's one parser reads both, so that every
/// key, default and rule is that of muster submit. Nothing here looks at files, except at those that the job extends.
struct JsonRequest {
  std::vector<muster::v1::JobSpec> specs;  // complete and valid, if there are no findings
  std::uint32_t parallel = 0;              // of a sweep; 0: no limit
  std::string user;                        // empty: not given
  std::string request_id;                  // empty: not given
  spec::Environment submitted_env;         // of a sweep: what its commands take from their submitter
  std::vector<Finding> findings;
};
JsonRequest read_job(const nlohmann::ordered_json& body);
/// The members that the body of a job or of a sweep may have.
std::vector<std::string> request_members(bool is_sweep);
/// Reads a sweep as read_job() reads a job, with the axes of `sweep` or the jobs of `settings`, and `parallel`.
JsonRequest read_sweep(const nlohmann::ordered_json& body);

}  // namespace jobfile
