#pragma once
// Types of CUDA's libraries that LibTorch's headers name and do not look into. fsdp/CMakeLists.txt copies this file to
// the names of the headers that declare them.
typedef struct cublasContext* cublasHandle_t;
typedef int cublasStatus_t;
typedef struct cublasLtContext* cublasLtHandle_t;
typedef struct cusolverDnContext* cusolverDnHandle_t;
typedef int cusolverStatus_t;
#define CUSOLVER_STATUS_SUCCESS 0
typedef struct cusparseContext* cusparseHandle_t;
typedef int cusparseStatus_t;
