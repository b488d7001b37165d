#pragma once
// Replaces Gloo's common/error.h. LibTorch's header of ProcessGroupGloo includes that header but uses nothing from it.
