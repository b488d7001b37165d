#pragma once

#include "schema/table.h"

namespace schema {

/// How the engine shards a model.
struct Sharding {
  bool reshard_after_forward = false;
  bool prefetch = false;
};

/// The rows of Sharding.
const Table& sharding();

}  // namespace schema
