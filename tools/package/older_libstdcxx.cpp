// A function whose symbol has a new version since the libstdc++ of GCC 12, though it does the same. Modules of the
// wheel link this one in its place (TorchProgram.cmake), so they run with the libstdc++ of GCC 11.
#include <condition_variable>

namespace std {

void condition_variable::wait(unique_lock<mutex>& lock) {
  _M_cond.wait(*lock.mutex());
}

}  // namespace std
