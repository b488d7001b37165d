#pragma once
// Stands in for CUDA's cublas_v2.h, of which LibTorch's headers need a few opaque types, so that building wants no
// further wheel.
typedef struct cublasContext* cublasHandle_t;
typedef int cublasStatus_t;
