#pragma once

#include <vector>

#include "muster/v1/job.pb.h"
#include "schema/recipes.h"

namespace jobfile {

/// The tables that a recipe's kind and family read; empty where there is no such kind or family.
std::vector<const schema::Table*> tables_of(const muster::v1::Recipe& recipe);

/// A recipe's values that these tables know, each of its key's kind. Others are left out: validate() tells of them.
schema::Values values_of(const muster::v1::JobSpec& spec, const std::vector<const schema::Table*>& tables);

}  // namespace jobfile
