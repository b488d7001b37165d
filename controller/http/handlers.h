#pragma once

#include "controller/http/message.h"

namespace http {

struct Call;

// What answers each route of routes.cpp. docs/api.md tells the parameters.

// job_pages.cpp
Response list_jobs(const Call& call);
Response whole_job(const Call& call);
Response job_metrics(const Call& call);
Response job_events(const Call& call);
Response job_logs(const Call& call);
Response job_ranks(const Call& call);
Response job_why(const Call& call);

// stack_pages.cpp
Response job_stacks(const Call& call);

// job_changes.cpp
Response cancel_job(const Call& call);
Response requeue_job(const Call& call);
Response hold_job(const Call& call);
Response release_job(const Call& call);
Response limit_job(const Call& call);
Response remove_job(const Call& call);
Response ask_stacks(const Call& call);
Response cancel_sweep(const Call& call);
Response requeue_sweep(const Call& call);
Response hold_sweep(const Call& call);
Response release_sweep(const Call& call);

// submissions.cpp
Response submit_job(const Call& call);
Response submit_sweep(const Call& call);

// api.cpp
Response log_in(const Call& call);
Response log_out(const Call& call);
Response machine(const Call& call);
Response status(const Call& call);
Response openapi(const Call& call);
Response health(const Call& call);
Response scrape(const Call& call);

}  // namespace http
