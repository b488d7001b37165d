#pragma once
// Replaces CUDA's cusolver_common.h. LibTorch's headers need only these opaque types, so the build needs no further
// wheel.
typedef int cusolverStatus_t;
#define CUSOLVER_STATUS_SUCCESS 0
