#include <iostream>

#include "cli/command.h"
#include "cli/job_pages.h"
#include "cli/text.h"
#include "jobfile/job_file.h"
#include "jobfile/spec.h"
#include "jobfile/toml_value.h"
#include "launch/secrets.h"

namespace cli {
namespace {

struct SpecOptions {
  std::int64_t job = 0;
  bool secrets = false;
};

using SpecVariables = google::protobuf::Map<std::string, std::string>;

/// The masked secrets: "env.WANDB_API_KEY, env.HF_TOKEN"; empty: there are none.
std::string secrets_of(const muster::v1::JobSpec& spec) {
  std::string names;
  const auto add = [&](const char* table, const SpecVariables& variables) {
    for (const auto& [name, value] : std::map<std::string, std::string>(variables.begin(), variables.end())) {
      if (launch::is_secret(name, value)) append(names, table + name);
    }
  };
  add("env.", spec.env());
  add("submitted_env.", spec.submitted_env());
  return names;
}

/// Comments at the head of the file that tell its origin.
std::string header_of(std::int64_t id, const muster::v1::JobSpec& spec) {
  std::string text = "# The settings of job " + std::to_string(id);
  if (!spec.job_file().empty()) text += ", submitted from " + jobfile::shown(spec.job_file());
  text += ".\n";
  if (spec.has_sweep() && spec.sweep().settings_size() > 0) {
    text += "# The job is one of a sweep: " + jobfile::shown(settings_text(spec.sweep())) + "\n";
  }
  return text;
}

int run_spec(Session& session, const SpecOptions& options) {
  auto spec = session.client().call(&JobStub::GetSpec, of_job(options.job));
  const auto hidden = options.secrets ? std::string() : secrets_of(spec);
  if (!options.secrets) jobfile::mask_secrets(spec);
  std::cout << header_of(options.job, spec) << jobfile::job_file_text(spec);
  if (!hidden.empty()) {
    std::cerr << "muster: these secrets are hidden: " << hidden << "; --secrets prints them, and muster submit --like "
              << options.job << " uses their values\n";
  }
  return kSuccess;
}

}  // namespace

void define_spec(CLI::App& app, Session& session) {
  auto options = add_action<SpecOptions>(app, session, run_spec);
  add_job(app, options->job);
  app.add_flag("--secrets", options->secrets, "Also print secrets");
}

}  // namespace cli
