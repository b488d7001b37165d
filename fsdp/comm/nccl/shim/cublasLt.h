#pragma once
// Replaces CUDA's cublasLt.h. LibTorch's headers need only these opaque types, so the build needs no further wheel.
typedef struct cublasLtContext* cublasLtHandle_t;
