#pragma once
// Replaces CUDA's cublas_v2.h. LibTorch's headers need only these opaque types, so the build needs no further wheel.
typedef struct cublasContext* cublasHandle_t;
typedef int cublasStatus_t;
