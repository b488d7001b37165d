#pragma once

#include "muster/v1/job.pb.h"

namespace jobfile {

/// Replaces every secret of a spec by spec::kMask: in [env], in variables from the submitter, and in the values that
/// a sweep varies. spec/secret_variables.h says what a secret is.
void mask_secrets(muster::v1::JobSpec& spec);
/// Masks the secrets in a sweep's settings only.
void mask_secrets(muster::v1::SweepElement& element);

}  // namespace jobfile
