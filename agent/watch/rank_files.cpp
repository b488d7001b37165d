#include "agent/watch/rank_files.h"

#include "agent/protocol/rank_log.h"
#include "agent/protocol/variables.h"

namespace beside {

RankFiles rank_files(const std::filesystem::path& log_folder, std::uint32_t rank) {
  const auto stem = (log_folder / (std::string(contract::kRankStart) + std::to_string(rank))).string();
  return {stem + std::string(contract::kLogEnd), stem + ".error.json", stem + ".stop.json", stem + ".report.jsonl"};
}

std::map<std::string, std::string> file_variables(const RankFiles& files) {
  return {{contract::variable::kReport, files.report.string()},
          {contract::variable::kStop, files.stop.string()},
          {contract::variable::kErrorFile, files.error.string()}};
}

}  // namespace beside
