// toml++ as an archive, which Debian does not have (MUSTER_STATIC of Libraries.cmake).
#define TOML_IMPLEMENTATION
#include <toml++/toml.h>
