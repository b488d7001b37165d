// muster admin drain, resume, backup, restore: what admins do around an upgrade.
#include <iostream>

#include "cli/cli_command.h"
#include "cli/cli_text.h"
#include "controller/core/core_text.h"

namespace cli {
namespace {

using muster::v1::DrainView;

constexpr std::chrono::seconds kBetweenLooks{2};

struct DrainOptions {
  std::string reason;
  bool wait = false, json = false;
};

std::string attempts_text(std::uint32_t count) {
  return core::count_text(count, "attempt");
}

/// Waits until no rank runs any more. Attempts in Slurm's queue start when Slurm lets them, so those are waited for,
/// too.
DrainView wait_for_quiet(Client& client) {
  std::string told;
  while (true) {
    const auto now = client.call(&AdminStub::Status, muster::v1::StatusRequest()).drain();
    const auto left = now.attempts_running() + now.attempts_queued();
    if (left == 0 || !now.drained()) return now;
    const auto text = attempts_text(left) + (left == 1 ? " is" : " are") + " left: muster list";
    if (std::exchange(told, text) != text) std::cerr << "muster: " << text << "\n";
    if (!Interrupts::instance().sleep(kBetweenLooks)) {
      throw Failure(kInterrupted, "interrupted; musterd stays drained: muster admin resume");
    }
  }
}

int run_drain(Session& session, const DrainOptions& options) {
  muster::v1::DrainRequest request;
  request.set_reason(options.reason);
  request.set_user(user_name());
  auto& client = session.client();
  auto view = client.call(&AdminStub::Drain, request);
  const bool changed = view.changed();
  if (options.wait) {
    Interrupts::instance().gently();
    view = wait_for_quiet(client);
    view.set_changed(changed);
    if (!view.drained()) throw Failure(kRefused, "somebody has said muster admin resume meanwhile");
  }
  if (options.json) {
    print_json(json_of(view));
    return kSuccess;
  }
  std::cout << "musterd is " << (changed ? "" : "already ")
            << "drained: no attempt starts before muster admin resume\n";
  if (view.attempts_running() > 0)
    std::cout << attempts_text(view.attempts_running()) << " running, which will go on\n";
  if (view.attempts_queued() > 0) {
    std::cout << attempts_text(view.attempts_queued())
              << " in Slurm's queue, which will start when Slurm lets them; muster hold keeps one there\n";
  }
  if (view.attempts_running() + view.attempts_queued() == 0) std::cout << "no attempt is left\n";
  return kSuccess;
}

int run_resume(Session& session, const JsonOption& options) {
  muster::v1::ResumeRequest request;
  request.set_user(user_name());
  const auto view = session.client().call(&AdminStub::Resume, request);
  if (options.json) {
    print_json(json_of(view));
  } else {
    std::cout << (view.changed() ? "attempts start again\n" : "musterd was not drained\n");
  }
  return kSuccess;
}

struct FileOptions {
  std::string file;
  bool metrics = false;
};

/// musterd knows the store, so musterd does it.
int run_musterd(Session& session, const std::string& flag, const FileOptions& options) {
  const auto program = must_find("musterd", "and it reads and writes the store");
  std::vector<std::string> words{program, "--data-folder", session.config().data_folder, flag, options.file};
  if (options.metrics) words.emplace_back("--backup-metrics");
  become(program, std::move(words));
}

int run_backup(Session& session, const FileOptions& options) {
  return run_musterd(session, "--backup", options);
}

int run_restore(Session& session, const FileOptions& options) {
  return run_musterd(session, "--restore", options);
}

}  // namespace

void define_admin_drain(CLI::App& app, Session& session) {
  auto options = add_action<DrainOptions>(app, session, run_drain);
  app.add_option("--reason", options->reason, "Shown to everybody whose job waits")->type_name("TEXT");
  app.add_flag("--wait", options->wait, "Return when no attempt is left");
  app.add_flag("--json", options->json,
               "{api_version, drained, user, since, reason, attempts_running, attempts_queued, changed}");
}

void define_admin_resume(CLI::App& app, Session& session) {
  auto options = add_action<JsonOption>(app, session, run_resume);
  app.add_flag("--json", options->json,
               "{api_version, drained, user, since, reason, attempts_running, attempts_queued, changed}");
}

void define_admin_backup(CLI::App& app, Session& session) {
  auto options = add_action<FileOptions>(app, session, run_backup);
  app.add_option("file", options->file, "The new file")->required()->type_name("FILE");
  app.add_flag("--metrics", options->metrics, "Write the metrics, too, into FILE.metrics: most of the bytes");
}

void define_admin_restore(CLI::App& app, Session& session) {
  auto options = add_action<FileOptions>(app, session, run_restore);
  app.add_option("file", options->file, "The backup")->required()->type_name("FILE");
}

}  // namespace cli
