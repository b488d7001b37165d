// A library with the functions of NVML that base/gpus.cpp calls, written after NVIDIA's nvml.h.
#include <cstdint>
#include <cstdlib>
#include <cstring>

extern "C" {
typedef struct nvmlDevice_st* nvmlDevice_t;
typedef struct {
  unsigned gpu, memory;
} nvmlUtilization_t;
typedef struct {
  unsigned long long total, free, used;
} nvmlMemory_t;
typedef struct {
  unsigned pid;
  unsigned long long usedGpuMemory;
  unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

int nvmlInit_v2() {
  return 0;
}
int nvmlShutdown() {
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  *device = reinterpret_cast<nvmlDevice_t>(0x1000);
  return index == 0 ? 0 : 15;  // NVML_ERROR_GPU_IS_LOST
}
int nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned length) {
  const auto part = reinterpret_cast<std::uintptr_t>(device) - 0x1000;
  std::strncpy(uuid, part == 0 ? "GPU-fake" : part == 1 ? "MIG-0" : "MIG-2", length);
  return 0;
}
int nvmlDeviceGetName(nvmlDevice_t, char* name, unsigned length) {
  std::strncpy(name, "A GPU", length);
  return 0;
}
// Divided into parts 0 and 2 where MUSTER_FAKE_MIG is set.
int nvmlDeviceGetMigMode(nvmlDevice_t, unsigned* now, unsigned* later) {
  *now = *later = std::getenv("MUSTER_FAKE_MIG") != nullptr ? 1 : 0;
  return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t, unsigned* count) {
  *count = 3;
  return 0;
}
int nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t, unsigned index, nvmlDevice_t* part) {
  if (index == 1) return 6;  // NVML_ERROR_NOT_FOUND
  *part = reinterpret_cast<nvmlDevice_t>(0x1001 + index);
  return 0;
}
int nvmlDeviceGetUtilizationRates(nvmlDevice_t, nvmlUtilization_t* utilization) {
  *utilization = {42, 7};
  return 0;
}
int nvmlDeviceGetMemoryInfo(nvmlDevice_t, nvmlMemory_t* memory) {
  *memory = {80'000'000'000, 77'000'000'000, 3'000'000'000};
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t, unsigned* count, nvmlProcessInfo_t* infos) {
  if (*count < 2) return 7;  // NVML_ERROR_INSUFFICIENT_SIZE
  infos[0] = {11, 1, 0xFFFFFFFF, 0xFFFFFFFF};
  infos[1] = {12, 2, 0xFFFFFFFF, 0xFFFFFFFF};
  *count = 2;
  return 0;
}
}
