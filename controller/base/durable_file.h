#pragma once

#include "os/durable_file.h"

namespace runtime {

using os::create_file_durably;
using os::make_folders;
using os::make_private_folder;
using os::read_small_file;
using os::write_file_durably;

}  // namespace runtime
