#pragma once
#include <c10/util/intrusive_ptr.h>

#include <memory>

#include "fsdp/comm/node/node.h"
#include "fsdp/comm/transport.h"

namespace fsdp::node {

/// Finds out over the store whether all ranks of a group can share memory, and connects them. Collective.
/// All ranks get a node, or all get null: then one of them runs elsewhere, or its system does not allow it.
/// Throws c10::Error naming the rank that has not come within the timeout.
std::unique_ptr<Node> meet(const c10::intrusive_ptr<c10d::Store>& store, const TransportOptions& options);

}  // namespace fsdp::node
