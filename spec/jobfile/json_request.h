#pragma once

#include <toml++/toml.h>
#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spec/jobfile/spec.h"
#include "spec/variables.h"

namespace jobfile {

/// Tables and arrays in one another.
inline constexpr int kDeepestJson = 8;

/// The object as a job file's table. A null leaves its key out. What TOML cannot say is a finding at `place`, and is
/// left out too.
toml::table table_of(const nlohmann::ordered_json& object, const std::string& place, std::vector<Finding>& findings);

/// The value in the form of --set: a text as it is, anything else as TOML. nullopt: null, an object or a number that
/// TOML cannot say.
std::optional<std::string> set_text(const nlohmann::ordered_json& value);

/// The value for messages, cut where it is long.
std::string json_shown(const nlohmann::ordered_json& value);

/// The most bytes of job file that a sweep may be composed of: those of its file, for each of its jobs.
inline constexpr std::size_t kMostSweepBytes = 256u << 20;

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
