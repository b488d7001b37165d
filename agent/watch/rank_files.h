#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace agent::watch {

/// The files of one rank in its attempt's log folder.
struct RankFiles {
  std::filesystem::path log;     // both outputs of its program
  std::filesystem::path error;   // what its program may write about its own end, as torchelastic's @record does
  std::filesystem::path stop;    // why it is asked to leave; see stop_file.h
  std::filesystem::path report;  // what its program tells of its training; see report.h
};
RankFiles rank_files(const std::filesystem::path& log_folder, std::uint32_t rank);

/// How its program learns where they are: MUSTER_REPORT, MUSTER_STOP and TORCHELASTIC_ERROR_FILE.
std::map<std::string, std::string> file_variables(const RankFiles& files);

}  // namespace agent::watch
