#include "cli/data.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "base/command.h"
#include "cli/command.h"

namespace cli {
namespace {

int data_failure(const std::string& what) {
  std::cerr << "muster data: " << what << "\n";
  return kUsage;
}

}  // namespace

std::optional<int> become_data(int argc, char** argv) {
  const int place = command_place(argc, argv);
  if (place == argc || std::string(argv[place]) != "data") return std::nullopt;
  const auto program = base::find_program("muster-data");
  if (program.empty()) {
    return data_failure(
        "there is no muster-data beside muster or in PATH, and it makes the data; build it with ./dev build");
  }
  std::string name = program.native();
  std::vector<char*> words{name.data()};
  words.insert(words.end(), argv + place + 1, argv + argc);
  words.push_back(nullptr);
  ::execv(program.c_str(), words.data());
  return data_failure("cannot start " + program.native() + ": " + std::strerror(errno) + "; build it with ./dev build");
}

void define_data(CLI::App& app, Session& session) {
  // For help and completion. become_data() takes every command line.
  const auto add = [&](const char* name, const char* summary) {
    add_action<JsonOption>(add_below(app, name, summary, std::string("muster data ") + name + " --help says more."),
                           session, [](Session&, const JsonOption&) { return static_cast<int>(kUsage); });
  };
  add("prepare", "Make a folder of data");
  add("show", "Print what a folder holds");
  add("check", "Read every byte of a folder and compare the checksums");
  add("decode", "Print one record");
}

}  // namespace cli
