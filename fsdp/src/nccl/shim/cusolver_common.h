#pragma once
// Stands in for CUDA's cusolver_common.h, of which LibTorch's headers need a few opaque types, so that building wants
// no further wheel.
typedef int cusolverStatus_t;
#define CUSOLVER_STATUS_SUCCESS 0
