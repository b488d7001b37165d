// Part of every program of the preset tsan: what ThreadSanitizer must know of libraries that are not instrumented.
#include <absl/synchronization/mutex.h>
#include <dlfcn.h>
#include <grpc/grpc.h>
#include <sanitizer/tsan_interface.h>

#include <cstdio>
#include <cstdlib>

extern "C" const char* __tsan_default_options() {
  // By default every program waits for a second before it exits.
  return "atexit_sleep_ms=0";
}

// ThreadSanitizer leaves out what gRPC and its helper libraries do to memory, and follows the code that their threads
// call. A name must not match two libraries. gRPC's closing of a socket is left out too. When a folder is opened under
// the number of that socket and closed, ThreadSanitizer takes the folder for the socket.
extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libgrpc.so\n"
         "called_from_lib:libgrpc++.so\n"
         "called_from_lib:libgpr.so\n"
         "called_from_lib:libupb.so\n"
         "called_from_lib:libabsl_cord.so\n"
         "called_from_lib:libabsl_graphcycles_internal.so\n"
         "called_from_lib:libabsl_status.so\n"
         "called_from_lib:libabsl_strings.so\n"
         "called_from_lib:libabsl_time.so\n"
         "called_from_lib:libabsl_time_zone.so\n"
         "race_top:closedir\n";
}

// gRPC orders the work of its threads by absl's mutexes and by atomics, and ThreadSanitizer sees neither. The functions
// below stand before those of libabsl_synchronization and libgrpc. To ThreadSanitizer, all absl mutexes are one: what a
// thread does before it unlocks one comes before what another thread does after it locks any. Starting an operation
// unlocks that mutex, too, and taking an operation that is done locks it: between the two gRPC may hand the operation
// on by atomics alone. Its headers write the operation in the one thread and read it in the other.
namespace {

char grpc_order;

template <typename Function>
Function real(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) {
    std::fprintf(stderr, "%s: in no library; tests/tsan/every_program.cpp needs its name\n", name);
    std::abort();
  }
  return reinterpret_cast<Function>(found);
}

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static const auto lock = real<void (*)(Mutex*)>("_ZN4absl7debian35Mutex4LockEv");
  lock(this);
  __tsan_acquire(&grpc_order);
}

bool Mutex::TryLock() {
  static const auto try_lock = real<bool (*)(Mutex*)>("_ZN4absl7debian35Mutex7TryLockEv");
  const bool locked = try_lock(this);
  if (locked) __tsan_acquire(&grpc_order);
  return locked;
}

void Mutex::Unlock() {
  static const auto unlock = real<void (*)(Mutex*)>("_ZN4absl7debian35Mutex6UnlockEv");
  __tsan_release(&grpc_order);
  unlock(this);
}

void CondVar::Wait(Mutex* mutex) {
  static const auto wait = real<void (*)(CondVar*, Mutex*)>("_ZN4absl7debian37CondVar4WaitEPNS0_5MutexE");
  __tsan_release(&grpc_order);
  wait(this, mutex);
  __tsan_acquire(&grpc_order);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static const auto wait = real<bool (*)(CondVar*, Mutex*, Duration)>(
      "_ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  __tsan_release(&grpc_order);
  const bool timed_out = wait(this, mutex, timeout);
  __tsan_acquire(&grpc_order);
  return timed_out;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static const auto wait =
      real<bool (*)(CondVar*, Mutex*, Time)>("_ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  __tsan_release(&grpc_order);
  const bool timed_out = wait(this, mutex, deadline);
  __tsan_acquire(&grpc_order);
  return timed_out;
}

ABSL_NAMESPACE_END
}  // namespace absl

extern "C" grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t count, void* tag,
                                                 void* reserved) {
  static const auto start = real<decltype(&grpc_call_start_batch)>("grpc_call_start_batch");
  __tsan_release(&grpc_order);
  return start(call, ops, count, tag, reserved);
}

extern "C" grpc_event grpc_completion_queue_next(grpc_completion_queue* queue, gpr_timespec deadline, void* reserved) {
  static const auto next = real<decltype(&grpc_completion_queue_next)>("grpc_completion_queue_next");
  const auto event = next(queue, deadline, reserved);
  __tsan_acquire(&grpc_order);
  return event;
}

extern "C" grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag, gpr_timespec deadline,
                                                  void* reserved) {
  static const auto pluck = real<decltype(&grpc_completion_queue_pluck)>("grpc_completion_queue_pluck");
  const auto event = pluck(queue, tag, deadline, reserved);
  __tsan_acquire(&grpc_order);
  return event;
}
