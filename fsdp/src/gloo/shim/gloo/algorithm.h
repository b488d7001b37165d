#pragma once
// Replaces Gloo's algorithm.h. LibTorch's header of ProcessGroupGloo includes that header but uses nothing from it.
// Gloo itself is inside libtorch_cpu. No wheel ships Gloo's headers, and a distribution's headers belong to another
// version.
