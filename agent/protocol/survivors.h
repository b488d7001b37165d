#pragma once

#include <string_view>

namespace agent::protocol {

/// Whether an error is what a rank says when another rank has gone: a connection that was closed, a collective that was
/// aborted. Such an error is the first cause of an end only where no other rank tells another one.
bool is_of_a_survivor(std::string_view error);

}  // namespace agent::protocol
