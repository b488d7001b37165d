#pragma once

#include "tests/temporary_folder.h"

using test::TemporaryFolder;
