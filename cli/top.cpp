// muster top: what each rank uses now.
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "cli/cli_command.h"
#include "cli/cli_text.h"
#include "cli/client.h"
#include "cli/list.h"
#include "controller/core/core_text.h"

namespace cli {
namespace {

using muster::v1::Job;
using muster::v1::Rank;

constexpr std::chrono::milliseconds kRefresh{2000};
/// A key is waited for in pieces: Ctrl-C ends the wait between two of them.
constexpr std::chrono::milliseconds kKeyWait{100};

struct TopOptions {
  std::vector<std::int64_t> jobs;
  std::string sort = "rank";
  bool once = false, json = false;
};

struct Line {
  const Job* job = nullptr;
  const Rank* rank = nullptr;
};

/// The value that lines are sorted by, the most first; unknown is less than nothing.
double weight_of(const Rank& rank, const std::string& sort) {
  const auto& use = rank.use();
  if (sort == "cpu") return use.has_cores() ? use.cores() : -1;
  if (sort == "mem") return use.has_memory_bytes() ? static_cast<double>(use.memory_bytes()) : -1;
  if (sort == "gpu") return use.has_gpu_percent() ? use.gpu_percent() : -1;
  return 0;
}

std::vector<Line> lines_of(const Listing& listing, const std::string& sort) {
  std::vector<Line> lines;
  for (const auto& job : listing.jobs) {
    for (const auto& rank : job.ranks()) lines.push_back({&job, &rank});
  }
  std::ranges::sort(lines, [&](const Line& a, const Line& b) {
    const auto weight_a = weight_of(*a.rank, sort), weight_b = weight_of(*b.rank, sort);
    if (weight_a != weight_b) return weight_a > weight_b;
    return std::pair(a.job->id(), a.rank->rank()) < std::pair(b.job->id(), b.rank->rank());
  });
  return lines;
}

std::string table_of(const std::vector<Line>& lines) {
  Table table;
  const auto add = [&](Table::Column column, auto text_of) { table.add(std::move(column), lines, text_of); };
  const auto add_use = [&](const char* title, std::string (*text_of)(const Rank&)) {
    add({title, true}, [text_of](const Line& line) { return text_of(*line.rank); });
  };
  add({"JOB", true}, [](const Line& line) { return std::to_string(line.job->id()); });
  add({"ATT", true}, [](const Line& line) { return std::to_string(line.rank->attempt()); });
  add({"RANK", true}, [](const Line& line) { return std::to_string(line.rank->rank()); });
  add({"NODE", false, 8}, [](const Line& line) { return or_dash(line.rank->node()); });
  add({"STATE", false, 0, true}, [](const Line& line) { return line.rank->state(); });
  add({"STEP", true},
      [](const Line& line) { return line.rank->has_step() ? std::to_string(line.rank->step()) : std::string("-"); });
  add_use("CORES", cores_text);
  add_use("MEMORY", memory_text);
  add_use("PEAK", memory_peak_text);
  if (std::ranges::any_of(lines, [](const Line& line) { return !line.rank->gpus().empty(); })) {
    add_use("GPUS", gpus_text);
  }
  add_use("GPU%", gpu_text);
  add_use("GPU MEM", gpu_memory_text);
  add({"AGE", true}, [](const Line& line) {
    return line.rank->use().has_age_ms() ? duration_text(line.rank->use().age_ms()) : std::string("-");
  });
  return table.text();
}

nlohmann::ordered_json json_of_line(const Line& line) {
  const auto& rank = *line.rank;
  const auto& use = rank.use();
  const auto known = [](bool is_known, auto value) {
    return is_known ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
  };
  return with_version({{"job_id", line.job->id()},
                       {"attempt", rank.attempt()},
                       {"rank", rank.rank()},
                       {"node", rank.node()},
                       {"state", rank.state()},
                       {"step", known(rank.has_step(), rank.step())},
                       {"cores", known(use.has_cores(), use.cores())},
                       {"memory_bytes", known(use.has_memory_bytes(), use.memory_bytes())},
                       {"memory_peak_bytes", known(use.has_memory_peak_bytes(), use.memory_peak_bytes())},
                       {"processes", known(use.has_memory_bytes(), use.processes())},
                       {"gpus", rank.gpus()},
                       {"gpu_percent", known(use.has_gpu_percent(), use.gpu_percent())},
                       {"gpu_memory_bytes", known(use.has_gpu_memory_bytes(), use.gpu_memory_bytes())},
                       {"age_ms", known(use.has_age_ms(), use.age_ms())}});
}

/// Why there is no line of a job that was named, one sentence each.
std::string notes_of(const Listing& listing, const TopOptions& options) {
  std::string text;
  if (options.jobs.empty()) return listing.jobs.empty() ? "muster: no job runs\n" : "";
  for (const auto& job : listing.jobs) {
    if (job.ranks_size() == 0)
      text += "muster: job " + std::to_string(job.id()) + " has no rank: " + status_of(job) + "\n";
  }
  return text;
}

/// The header and as many lines as fit on the screen.
std::string screen_of(const Listing& listing, const TopOptions& options) {
  auto lines = lines_of(listing, options.sort);
  if (lines.empty()) return options.jobs.empty() ? "no job runs\n" : notes_of(listing, options);
  constexpr std::size_t kBesideLines = 2;  // the header and the cursor's line
  const auto room = screen_lines() - kBesideLines;
  if (lines.size() <= room) return table_of(lines);
  const auto all = lines.size();
  lines.resize(room - 1);
  return table_of(lines) +
         cut(std::to_string(lines.size()) + " of " + core::count_text(all, "rank") +
                 "; a taller window shows more, --sort chooses which",
             table_columns()) +
         "\n";
}

/// While it lives, keys come as they are typed and are not shown.
class Keys {
 public:
  Keys() {
    if (::isatty(STDIN_FILENO) == 0 || ::tcgetattr(STDIN_FILENO, &before_) != 0) return;
    auto now = before_;
    now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    is_set_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &now) == 0;
  }
  ~Keys() {
    if (is_set_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;

  /// False: a person wants no more.
  bool wait(std::chrono::milliseconds time) const {
    if (!is_set_) return Interrupts::instance().sleep(time);
    const auto until = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < until) {
      pollfd key{STDIN_FILENO, POLLIN, 0};
      char typed = 0;
      if (::poll(&key, 1, static_cast<int>(kKeyWait.count())) > 0 && ::read(STDIN_FILENO, &typed, 1) != 1) return false;
      if (typed == 'q' || typed == 'Q' || Interrupts::instance().requested()) return false;
    }
    return true;
  }

 private:
  termios before_{};
  bool is_set_ = false;
};

int watch(Client& client, const JobQuery& query, const TopOptions& options) {
  Interrupts::instance().gently();
  const Keys keys;
  Contact contact(client);
  while (!Interrupts::instance().requested()) {
    Listing listing;
    const auto status = read_jobs(client, query, &listing);
    if (!status.ok()) {
      if (!contact.settle(status)) break;
      continue;
    }
    contact.regained();
    std::cout << "\x1b[H\x1b[J" << screen_of(listing, options) << std::flush;
    if (!keys.wait(kRefresh)) break;
  }
  return Interrupts::instance().requested() ? kInterrupted : kSuccess;
}

int run_top(Session& session, const TopOptions& options) {
  auto& client = session.client();
  JobQuery query;
  query.with_ranks = true;
  query.limit = UINT32_MAX;
  query.ids = options.jobs;
  if (options.jobs.empty()) query.states = {"running", "stopping"};
  if (!options.once && !options.json && stdout_is_terminal()) return watch(client, query, options);
  const auto listing = list_jobs(client, query);
  const auto lines = lines_of(listing, options.sort);
  if (options.json) {
    print_json_array(lines, json_of_line);
  } else {
    std::cout << table_of(lines) << std::flush;
    std::cerr << notes_of(listing, options);
  }
  return tell_missing("top", listing, query);
}

}  // namespace

void define_top(CLI::App& app, Session& session) {
  auto options = add_action<TopOptions>(app, session, run_top);
  add_jobs(app, options->jobs)->expected(0, kMostNamedJobs)->description("Only these jobs, by their numbers");
  app.add_option("--sort", options->sort, "The most first: by cpu, mem or gpu; rank is by job and rank")
      ->check(CLI::IsMember({"cpu", "mem", "gpu", "rank"}))
      ->capture_default_str();
  app.add_flag("--once", options->once, "Print the table once, on a terminal too");
  app.add_flag("--json", options->json, "An array of ranks, once");
}

}  // namespace cli
