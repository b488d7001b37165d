#pragma once

#include <pthread.h>
#include <signal.h>

namespace base {

/// While it lives this thread takes no signal, and neither do threads that are started meanwhile, for good. All but
/// SIGURG: by it a process is asked where its threads stand (agent/protocol/files.h), and it does no harm anywhere
/// else.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::sigdelset(&all, SIGURG);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace base
