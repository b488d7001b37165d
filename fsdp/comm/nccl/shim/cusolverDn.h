#pragma once
// Replaces CUDA's cusolverDn.h. LibTorch's headers need only these opaque types, so the build needs no further wheel.
typedef struct cusolverDnContext* cusolverDnHandle_t;
