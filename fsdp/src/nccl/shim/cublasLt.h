#pragma once
// Stands in for CUDA's cublasLt.h, of which LibTorch's headers need a few opaque types, so that building wants no
// further wheel.
typedef struct cublasLtContext* cublasLtHandle_t;
