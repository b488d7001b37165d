#pragma once

#include "spec/environment.h"

namespace agent::environment {

/// What this process's user would find after a fresh login: HOME, USER, LOGNAME and SHELL of the user database, PATH
/// and LANG with plain defaults; and PYTHONUNBUFFERED=1, so that a log shows what Python prints when it prints it. The
/// same in every call: the user database is asked once.
const spec::Environment& login_environment();

}  // namespace agent::environment
