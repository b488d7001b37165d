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

}  // namespace agent::rank
