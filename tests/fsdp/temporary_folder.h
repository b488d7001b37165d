#pragma once

#include "../temporary_folder.h"

using test::TemporaryFolder;
