#pragma once

#include "schema/whole_number.h"

namespace runtime {

using schema::whole_number;

}  // namespace runtime
