#pragma once

#include <sstream>
#include <string>
#include <vector>

namespace slurm {

/// The reasons of job_reason_string() in Slurm 22.05, in its order. Repeated names appear once.
inline std::vector<std::string> reason_names() {
  std::istringstream text(R"(
    None Prolog Priority Dependency Resources PartitionNodeLimit PartitionTimeLimit PartitionDown
    PartitionInactive JobHeldAdmin JobHeldUser BeginTime Licenses AssociationJobLimit AssociationResourceLimit
    AssociationTimeLimit Reservation ReqNodeNotAvail FrontEndDown SchedDefer NodeDown BadConstraints SystemFailure
    JobLaunchFailure NonZeroExitCode TimeLimit InactiveLimit InvalidAccount InvalidQOS QOSUsageThreshold
    QOSJobLimit QOSResourceLimit QOSTimeLimit BlockMaxError BlockFreeAction Cleaning QOSNotAllowed
    AccountNotAllowed DependencyNeverSatisfied QOSGrpCpuLimit QOSGrpCPUMinutesLimit QOSGrpCPURunMinutesLimit
    QOSGrpJobsLimit QOSGrpMemLimit QOSGrpNodeLimit QOSGrpSubmitJobsLimit QOSGrpWallLimit QOSMaxCpuPerJobLimit
    QOSMaxCpuMinutesPerJobLimit QOSMaxNodePerJobLimit QOSMaxWallDurationPerJobLimit QOSMaxCpuPerUserLimit
    QOSMaxJobsPerUserLimit QOSMaxNodePerUserLimit QOSMaxSubmitJobPerUserLimit QOSMinCpuNotSatisfied
    AssocGrpCpuLimit AssocGrpCPUMinutesLimit AssocGrpCPURunMinutesLimit AssocGrpJobsLimit AssocGrpMemLimit
    AssocGrpNodeLimit AssocGrpSubmitJobsLimit AssocGrpWallLimit AssocMaxJobsLimit AssocMaxCpuPerJobLimit
    AssocMaxCpuMinutesPerJobLimit AssocMaxNodePerJobLimit AssocMaxWallDurationPerJobLimit AssocMaxSubmitJobLimit
    JobHoldMaxRequeue JobArrayTaskLimit BurstBufferResources BurstBufferStageIn BurstBufferOperation PowerNotAvail
    PowerReserved AssocGrpUnknown AssocGrpUnknownMinutes AssocGrpUnknownRunMinutes AssocMaxUnknownPerJob
    AssocMaxUnknownPerNode AssocMaxUnknownMinutesPerJob AssocMaxCpuPerNode AssocGrpMemMinutes
    AssocGrpMemRunMinutes AssocMaxMemPerJob AssocMaxMemPerNode AssocMaxMemMinutesPerJob AssocGrpNodeMinutes
    AssocGrpNodeRunMinutes AssocMaxNodeMinutesPerJob AssocGrpEnergy AssocGrpEnergyMinutes AssocGrpEnergyRunMinutes
    AssocMaxEnergyPerJob AssocMaxEnergyPerNode AssocMaxEnergyMinutesPerJob AssocGrpGRES AssocGrpGRESMinutes
    AssocGrpGRESRunMinutes AssocMaxGRESPerJob AssocMaxGRESPerNode AssocMaxGRESMinutesPerJob AssocGrpLicense
    AssocGrpLicenseMinutes AssocGrpLicenseRunMinutes AssocMaxLicensePerJob AssocMaxLicenseMinutesPerJob AssocGrpBB
    AssocGrpBBMinutes AssocGrpBBRunMinutes AssocMaxBBPerJob AssocMaxBBPerNode AssocMaxBBMinutesPerJob
    QOSGrpUnknown QOSGrpUnknownMinutes QOSGrpUnknownRunMinutes QOSMaxUnknownPerJob QOSMaxUnknownPerNode
    QOSMaxUnknownPerUser QOSMaxUnknownMinutesPerJob QOSMinUnknown QOSMaxCpuPerNode QOSGrpMemoryMinutes
    QOSGrpMemoryRunMinutes QOSMaxMemoryPerJob QOSMaxMemoryPerNode QOSMaxMemoryPerUser QOSMaxMemoryMinutesPerJob
    QOSMinMemory QOSGrpNodeMinutes QOSGrpNodeRunMinutes QOSMaxNodeMinutesPerJob QOSMinNode QOSGrpEnergy
    QOSGrpEnergyMinutes QOSGrpEnergyRunMinutes QOSMaxEnergyPerJob QOSMaxEnergyPerNode QOSMaxEnergyPerUser
    QOSMaxEnergyMinutesPerJob QOSMinEnergy QOSGrpGRES QOSGrpGRESMinutes QOSGrpGRESRunMinutes QOSMaxGRESPerJob
    QOSMaxGRESPerNode QOSMaxGRESPerUser QOSMaxGRESMinutesPerJob QOSMinGRES QOSGrpLicense QOSGrpLicenseMinutes
    QOSGrpLicenseRunMinutes QOSMaxLicensePerJob QOSMaxLicensePerUser QOSMaxLicenseMinutesPerJob QOSMinLicense
    QOSGrpBB QOSGrpBBMinutes QOSGrpBBRunMinutes QOSMaxBBPerJob QOSMaxBBPerNode QOSMaxBBPerUser QOSMinBB DeadLine
    MaxBBPerAccount MaxCpuPerAccount MaxEnergyPerAccount MaxGRESPerAccount MaxNodePerAccount MaxLicensePerAccount
    MaxMemoryPerAccount MaxUnknownPerAccount MaxJobsPerAccount MaxSubmitJobsPerAccount PartitionConfig
    AccountingPolicy FedJobLock OutOfMemory MaxMemPerLimit AssocGrpBilling AssocGrpBillingMinutes
    AssocGrpBillingRunMinutes AssocMaxBillingPerJob AssocMaxBillingPerNode AssocMaxBillingMinutesPerJob
    QOSGrpBilling QOSGrpBillingMinutes QOSGrpBillingRunMinutes QOSMaxBillingPerJob QOSMaxBillingPerNode
    QOSMaxBillingPerUser QOSMaxBillingMinutesPerJob MaxBillingPerAccount QOSMinBilling ReservationDeleted)");
  std::vector<std::string> names;
  for (std::string name; text >> name;) names.push_back(name);
  return names;
}

}  // namespace slurm
