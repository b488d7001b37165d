#include "agent/beside/sidecar.h"

#include <cstdio>
#include <map>
#include <system_error>

#include "agent/watch/last_words.h"
#include "base/patience.h"

namespace agent::beside {

use::Rank Sidecar::seen_as(pid_t pid) const {
  const auto devices = setup_.environment.find(spec::variable::kVisibleDevices);
  return {setup_.rank, pid, devices == setup_.environment.end() ? std::nullopt : std::optional(devices->second)};
}

void Sidecar::look_before_start(Clock::time_point until) {
  if (!setup_.connect || setup_.report.empty()) return;
  sources_ =
      report::make_sources(setup_.report, {setup_.rank, setup_.files.log, setup_.working_folder, setup_.environment});
  sources_.begin(until);
}

void Sidecar::follow(pid_t pid) {
  if (!setup_.connect || !setup_.is_command) return;
  try {
    relay_ = std::make_unique<report::Relay>(setup_.files.report, setup_.connect(setup_.reporters, pid),
                                             std::move(sources_));
  } catch (const std::system_error& error) {
    std::fprintf(stderr, "muster-agent: nobody reads what rank %u reports: %s\n", setup_.rank, error.what());
  }
}

void Sidecar::ended(const spec::ExitStatus& exit) {
  if (relay_) relay_->ended(exit);
}

std::optional<std::string> Sidecar::last_words(const spec::ExitStatus& exit, Asked asked) const {
  if (asked == Asked::kToLeave) return "";
  const bool by_a_peer = asked == Asked::kBecauseAPeerFailed;
  if (!(by_a_peer ? watch::may_have_failed(exit) : watch::may_have_words(exit))) return "";
  auto* const read = by_a_peer ? watch::read_own_failure : watch::read_last_words;
  return base::ask_within<std::string>(kWordsPatience, [read, files = setup_.files] { return read(files); });
}

std::set<std::uint32_t> Sidecar::tell_stop(const std::vector<const Sidecar*>& ranks, const watch::StopNotice& how) {
  if (how.why.empty()) return {};
  std::map<std::uint32_t, std::filesystem::path> files;
  for (const auto* rank : ranks) files[rank->setup_.rank] = rank->setup_.files.stop;
  const auto know = base::ask_within<std::set<std::uint32_t>>(kFilePatience, [files, how] {
    std::set<std::uint32_t> looking;
    for (const auto& [rank, file] : files) {
      if (watch::write_stop_file(file, how) && watch::looks_for(file)) looking.insert(rank);
    }
    return looking;
  });
  return know.value_or(std::set<std::uint32_t>());
}

}  // namespace agent::beside
