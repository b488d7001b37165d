#pragma once

#include "tests/temporary_folder.h"

namespace slurm::testing {

using test::read_file;
using test::TemporaryFolder;
using test::write_file;

}  // namespace slurm::testing
