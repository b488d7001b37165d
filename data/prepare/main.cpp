// muster-data: makes prepared data and looks at it. prepare_options.cpp says what it does.
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "base/cgroups.h"
#include "data/prepare/look.h"
#include "data/prepare/prepare_job.h"
#include "data/prepare/prepare_options.h"
#include "data/prepare/records.h"
#include "data/tokenizers/tokenizer.h"

namespace {

using data::prepare::Ended;

constexpr int kDone = 0;
constexpr int kRefused = 1;  // by the system
constexpr int kWrong = 2;
constexpr int kSignalled = 128;  // plus the signal's number

std::atomic<int> stop_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

/// Lets SIGINT and SIGTERM end the work at the next record. A second one ends the program at once, which loses no
/// finished file either.
void catch_signals() {
  struct sigaction action {};
  action.sa_handler = [](int number) { stop_signal = number; };
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

/// The tokenizers' crate has threads of its own, which it counts by this variable.
void set_threads(int jobs) {
  ::setenv("RAYON_NUM_THREADS", std::to_string(jobs).c_str(), /*overwrite=*/0);
}

int jobs_of(const data::prepare::PrepareOptions& options) {
  if (options.jobs > 0) return options.jobs;
  return static_cast<int>(base::core_limit().cores);
}

std::string result_text(const data::prepare::Job& job, const data::prepare::Counts& counts, const std::string& unit) {
  std::string text = job.folder.native() + ": " + data::prepare::grouped(counts.records) + " records, " +
                     data::prepare::grouped(counts.elements) + " " + unit + " of " + job.records.name;
  if (counts.parts_kept > 0) text += "; " + data::prepare::grouped(counts.parts_kept) + " parts were there before";
  return text;
}

int run(const data::prepare::PrepareOptions& options) {
  const bool images = data::prepare::has_images(options.from);
  const std::string unit = images ? "bytes" : "tokens";
  data::prepare::Job job;
  job.jobs = jobs_of(options);
  set_threads(job.jobs);
  if (!images) job.tokenizer = data::tokenizers::open_tokenizer(options.tokenizer);
  data::prepare::Progress* printer = nullptr;
  data::prepare::LeftOut left_out([&printer](const std::string& line) {
    if (printer != nullptr) return printer->say(line);
    std::fprintf(stderr, "muster data prepare: %s\n", line.c_str());
  });
  job.records = data::prepare::open_records(options, job.tokenizer, left_out);
  job.splits = {options.validation, static_cast<std::uint64_t>(options.seed)};
  job.folder = options.to;
  job.tokenizer_path = options.tokenizer;
  job.prefix_text = images ? "" : options.prefix;
  job.made_by = "muster-data " MUSTER_VERSION;
  if (options.name_only) {
    std::cout << data::prepare::folder_in_cache(job, options.cache).native() << "\n";
    return kDone;
  }
  catch_signals();
  data::prepare::Progress progress("muster data prepare", unit, job.records.parts);
  printer = &progress;
  progress.say("reads " + job.records.name);
  const auto ended = options.cache.empty() ? data::prepare::prepare(job, progress, stop_signal)
                                           : data::prepare::prepare_in_cache(job, options.cache, progress, stop_signal);
  if (ended == Ended::kStopped) {
    progress.say(progress.counts().parts_done > 0 ? "stopped; the same command goes on from here"
                                                  : "stopped before a part was whole; the same command begins again");
    return kSignalled + stop_signal;
  }
  if (!options.cache.empty()) std::cout << job.folder.native() << "\n";
  const bool was_done = ended == Ended::kWasDone;
  const std::string here = job.folder.native();
  const bool has_kept = options.skip_damaged && progress.counts().parts_kept > 0;
  if (left_out.count() > 0 || has_kept) {
    progress.say("left out " + data::prepare::grouped(left_out.count()) +
                 (left_out.count() == 1 ? " record that cannot be read" : " records that cannot be read") +
                 (has_kept ? "; those of the parts that were there before were told then" : ""));
  }
  progress.say(was_done ? here + " is finished already; muster data check " + here + " reads all of it"
                        : result_text(job, progress.counts(), unit));
  return kDone;
}

int run(const data::prepare::ShowOptions& options) {
  data::prepare::show(options, std::cout);
  return kDone;
}

int run(const data::prepare::CheckOptions& options) {
  const auto files = data::prepare::files_of(options);
  catch_signals();
  data::prepare::Progress progress("muster data check", "elements", files);
  return data::prepare::check(options, progress, stop_signal, std::cout) ? kDone : kSignalled + stop_signal;
}

int run(const data::prepare::DecodeOptions& options) {
  data::prepare::decode(options, std::cout);
  return kDone;
}

int run(const data::prepare::HelpOptions& options) {
  std::cout << options.text;
  return kDone;
}

/// Prints the failure in one line: another program may take the last line of stderr for the reason.
int fail(const std::string& command, std::string what, int exit = kWrong) {
  std::replace(what.begin(), what.end(), '\n', ' ');
  std::cout << std::flush;
  std::fprintf(stderr, "muster data%s: %s\n", command.c_str(), what.c_str());
  return exit;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const bool has_command = !words.empty() && !words[0].starts_with("-");
  const std::string command = has_command ? " " + words[0] : "";
  try {
    const auto parsed = data::prepare::parse_command(words);
    const int exit = std::visit([](const auto& options) { return run(options); }, parsed);
    std::cout << std::flush;
    if (!std::cout) return fail(command, "cannot write to standard output; is the disk full?", kRefused);
    return exit;
  } catch (const data::prepare::UsageError& error) {
    const bool known = command == " prepare" || command == " show" || command == " check" || command == " decode";
    return fail(known ? command : "",
                std::string(error.what()) + "; see muster data" + (known ? command : "") + " --help");
  } catch (const std::bad_alloc&) {
    return fail(command, "out of memory; use fewer --jobs", kRefused);
  } catch (const std::system_error& error) {
    return fail(command, error.what(), kRefused);
  } catch (const std::exception& error) {
    return fail(command, error.what());
  }
}
