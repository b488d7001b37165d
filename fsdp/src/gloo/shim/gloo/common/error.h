#pragma once
// Stands in for Gloo's common/error.h, which LibTorch's header of ProcessGroupGloo includes and uses nothing of.
