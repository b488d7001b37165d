#include "agent/watch/rank_files.h"

#include "agent/protocol/rank_log.h"
#include "spec/variables.h"

namespace agent::watch {

RankFiles rank_files(const std::filesystem::path& log_folder, std::uint32_t rank) {
  const auto stem = (log_folder / (std::string(protocol::kRankStart) + std::to_string(rank))).string();
  return {stem + std::string(protocol::kLogEnd), stem + ".error.json", stem + ".stop.json", stem + ".report.jsonl"};
}

std::map<std::string, std::string> file_variables(const RankFiles& files) {
  return {{spec::variable::kReport, files.report.string()},
          {spec::variable::kStop, files.stop.string()},
          {spec::variable::kErrorFile, files.error.string()}};
}

}  // namespace agent::watch
