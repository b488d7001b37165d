#pragma once

namespace data::prepare {

// The texts of --help: of the program, and of its commands.
extern const char* const kHelp;
extern const char* const kPrepareHelp;
extern const char* const kShowHelp;
extern const char* const kCheckHelp;
extern const char* const kDecodeHelp;

}  // namespace data::prepare
