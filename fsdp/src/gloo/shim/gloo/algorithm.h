#pragma once
// Stands in for Gloo's algorithm.h, which LibTorch's header of ProcessGroupGloo includes and uses nothing of. Gloo
// itself is inside libtorch_cpu; its headers are in no wheel, and those of a distribution belong to another version.
