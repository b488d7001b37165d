#pragma once

#include "muster/v1/job.pb.h"

namespace jobfile {

/// Puts launch::kMask in the place of every secret of a spec: in [env], in what it took from its submitter, and in what
/// a sweep varies. See launch/secrets.h for what is a secret.
void mask_secrets(muster::v1::JobSpec& spec);
/// The same of a sweep's settings alone.
void mask_secrets(muster::v1::SweepElement& element);

}  // namespace jobfile
