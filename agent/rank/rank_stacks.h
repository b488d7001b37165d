#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace agent::rank {

/// The names of this program's own functions, from the table of symbols in its file. A library's are asked for with
/// dladdr(), which does not know those of a program.
class OwnSymbols {
 public:
  /// Reads the file of this process. Empty where it has no such table, as after strip.
  OwnSymbols();
  /// The function of this address, as people read it; empty: it is none of the program's.
  std::string name_of(std::uintptr_t address) const;

 private:
  struct Function {
    std::uintptr_t begin = 0, end = 0;
    std::string name;
  };
  std::vector<Function> functions_;  // by address
};

/// "fsdp::Unit::wait()" of "_ZN4fsdp4Unit4waitEv"; what is no such name stays.
std::string demangled(const char* name);

/// From now on the agent beside this rank can have the frames of each of its threads (agent/protocol/files.h): a file
/// in memory is there, and a handler for the signal by which the agent asks.
///
/// The handler wakes a thread that waits for nothing else. That thread asks each thread of the process by the same
/// signal to note the addresses of its frames, one after the other, and writes them with their names. A handler touches
/// no lock and no memory but its own, so it may interrupt anything. A thread that takes no signals, or stands in the
/// kernel, is left out after a moment. Does nothing where the system refuses a thread or the file. For one call.
void offer_stacks();

}  // namespace agent::rank
