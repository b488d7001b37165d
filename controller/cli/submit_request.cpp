#include <iostream>

#include "cli/submit_options.h"
#include "spec/job_file.h"
#include "spec/toml_value.h"

namespace cli {
namespace {

/// The options that stand for keys of the job file.
std::vector<spec::Override> overrides_of(const SubmitOptions& options) {
  std::vector<spec::Override> all;
  for (const auto& assignment : options.set) all.push_back(spec::override_of_set(assignment));
  if (!options.name.empty()) all.push_back({"--name " + options.name, "name", options.name});
  if (!options.executor.empty()) all.push_back({"--executor " + options.executor, "executor", options.executor});
  if (options.hold) all.push_back({"--hold", "hold", "true"});
  if (options.after.empty()) return all;
  std::string typed, array;
  for (const auto& job : options.after) {
    typed += (typed.empty() ? "--after " : " --after ") + spec::shown(job);
    std::string text;
    for (const char c : job) {
      if (c != '"' && c != '\\' && static_cast<unsigned char>(c) >= 0x20) text += c;  // no job is called so
    }
    array += (array.empty() ? "" : ", ") + ("\"" + text + "\"");
  }
  all.push_back({typed, "after", "[" + array + "]"});
  return all;
}

std::nullopt_t tell(const std::vector<std::string>& problems) {
  for (const auto& problem : problems) std::cerr << problem << "\n";
  std::cerr << "muster submit: nothing was submitted; muster submit --help explains every key\n";
  return std::nullopt;
}

}  // namespace

std::optional<Request> read_request(Session& session, const SubmitOptions& options) {
  const auto source = spec::JobSource::of_file(options.file);
  const auto overrides = overrides_of(options);
  std::vector<spec::SweepAxis> axes;
  std::vector<std::string> problems;
  for (const auto& text : options.sweep) {
    auto axis = spec::axis_of_option(text);
    for (const auto& known : axes) {
      if (known.key == axis.axis.key)
        axis.problem = "--sweep " + spec::shown(text) + ": " + known.key + " varies already";
    }
    if (!axis.problem.empty()) problems.push_back(axis.problem);
    axes.push_back(std::move(axis.axis));
  }
  const bool here = is_loopback(session.config().address.value);
  auto checks = here ? spec::FileChecks::kLook : spec::FileChecks::kSkip;
  auto file = spec::compose(source, overrides, checks);
  const bool is_sweep = !options.sweep.empty() || !file.axes.empty();
  if (problems.empty() && is_sweep) {
    auto sweep = spec::compose_sweep(source, overrides, std::move(axes), checks);
    if (!sweep.problems.empty()) return tell(sweep.problems);
    return Request{std::move(sweep.specs), true, options.parallel > 0 ? options.parallel : sweep.parallel};
  }
  if (file.problems.empty() && file.spec.executor() == "debug" && !here) {
    file = spec::compose(source, overrides, spec::FileChecks::kLook);  // it runs here, wherever the controller is
  }
  problems.insert(problems.end(), file.problems.begin(), file.problems.end());
  if (!problems.empty()) return tell(problems);
  if (options.parallel > 0) throw Failure(kUsage, "--parallel is for sweeps; add --sweep, or leave it out");
  return Request{{std::move(file.spec)}, false, 0};
}

}  // namespace cli
