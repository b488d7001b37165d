#pragma once
// Stands in for CUDA's cusolverDn.h, of which LibTorch's headers need a few opaque types, so that building wants no
// further wheel.
typedef struct cusolverDnContext* cusolverDnHandle_t;
