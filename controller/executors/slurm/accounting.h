#pragma once

#include "executors/slurm/attempt_table.h"
#include "executors/slurm/listings.h"
#include "executors/slurm/slurm_clock.h"

namespace runtime::on_slurm {

/// Asks accounting about the attempts whose end no listing tells any more. Makes one query for all of them.
void ask_accounting(::slurm::Scheduler& scheduler, AttemptTable& table, const Listing& listing,
                    const SlurmClock& slurm_clock, const Clock& clock);

}  // namespace runtime::on_slurm
