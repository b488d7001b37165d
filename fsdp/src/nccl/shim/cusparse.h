#pragma once
// Stands in for CUDA's cusparse.h, of which LibTorch's headers need a few opaque types, so that building wants no
// further wheel.
typedef struct cusparseContext* cusparseHandle_t;
typedef int cusparseStatus_t;
