#pragma once
// Replaces CUDA's cusparse.h. LibTorch's headers need only these opaque types, so the build needs no further wheel.
typedef struct cusparseContext* cusparseHandle_t;
typedef int cusparseStatus_t;
