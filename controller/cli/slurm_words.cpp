#include "cli/slurm_words.h"

#include <algorithm>
#include <filesystem>

#include "cli/text.h"
#include "wire/logs.h"

namespace cli {
namespace {

constexpr std::uint32_t kMostWords = 5;            // lines
constexpr std::size_t kLongestWord = 200;          // the most characters of a line
constexpr std::size_t kMostWordBytes = 64 * 1024;  // read at most this much of the log
constexpr std::chrono::seconds kWordsWithin{5};

std::vector<std::string> last_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    auto line = cut(harmless(text.substr(0, end)), kLongestWord);
    if (line.find_first_not_of(' ') != std::string::npos) lines.push_back(std::move(line));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (lines.size() > kMostWords) lines.erase(lines.begin(), lines.end() - kMostWords);
  return lines;
}

}  // namespace

bool failed_before_ranks(const muster::v1::Job& job) {
  if (job.attempts_size() == 0) return false;
  const auto& attempt = *job.attempts().rbegin();
  const auto& cause = attempt.cause();
  if (attempt.scheduler_job().empty() || attempt.state() != "ended") return false;
  if (cause != "failed" && cause != "node_failed" && cause != "controller_lost") return false;
  return std::ranges::none_of(job.ranks(), [](const muster::v1::Rank& rank) { return rank.pid() > 0; });
}

std::vector<std::string> slurm_words(Client& client, const muster::v1::Job& job) {
  if (!failed_before_ranks(job)) return {};
  muster::v1::LogsRequest request;
  request.set_job_id(job.id());
  request.set_attempt(job.attempts().rbegin()->number());
  request.set_rank(proto::kSchedulerLog);
  request.set_tail_lines(kMostWords);
  grpc::ClientContext context;
  client.authorize(context);
  context.set_deadline(std::chrono::system_clock::now() + kWordsWithin);
  const auto reader = client.jobs().Logs(&context, request);
  std::string text;
  muster::v1::LogChunk chunk;
  while (text.size() < kMostWordBytes && reader->Read(&chunk)) text += chunk.data();
  // A line may be as long as the file, so stop after kMostWordBytes. A log that cannot be read is not mentioned.
  context.TryCancel();
  reader->Finish();
  return last_lines(text);
}

std::string slurm_log_place(const muster::v1::Job& job) {
  const auto id = job.attempts_size() == 0 ? "" : job.attempts().rbegin()->scheduler_job();
  if (id.empty()) return "";
  // The log of an array's element is in the folder of the array.
  const bool is_element = id.find('_') != std::string::npos;
  if (is_element || job.log_folder().empty()) return "muster logs " + std::to_string(job.id()) + " --slurm";
  return (std::filesystem::path(job.log_folder()).parent_path() / "slurm.log").native();
}

}  // namespace cli
