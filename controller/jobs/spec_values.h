#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/data_folder.h"
#include "core/apply.h"
#include "muster/v1/job.pb.h"

namespace jobs {

std::string spec_to_text(const muster::v1::JobSpec& spec);
core::RequeuePolicy requeue_policy(const muster::v1::JobSpec& spec);
/// What the job's history begins with.
core::JobSubmitted job_submitted(const muster::v1::JobSpec& spec, const std::string& user);
/// Between the polite signal and SIGKILL: the job's own grace where ranks are to save, a short one where they can't.
core::Millis stop_grace(const muster::v1::JobSpec& spec, bool save);
/// The job's own checkpoint folder, or the one its spec names.
std::filesystem::path checkpoint_folder(const muster::v1::JobSpec& spec, core::JobId job, const base::DataFolder& data);

}  // namespace jobs
