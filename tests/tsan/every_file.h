// Included before every file that the preset tsan compiles.
#pragma once

// libstdc++ reads __SANITIZE_THREAD__ here.
#include <bits/c++config.h>

// protobuf's headers give every map field two more members where __SANITIZE_THREAD__ is defined. The installed
// libprotobuf was compiled without them, so it reads each later member of a map field 8 bytes too early.
#undef __SANITIZE_THREAD__

// g++ 12's ThreadSanitizer does not see pthread_mutex_clocklock. Without it std::timed_mutex calls
// pthread_mutex_timedlock.
#undef _GLIBCXX_USE_PTHREAD_MUTEX_CLOCKLOCK

// ThreadSanitizer does not see fences. Without std::atomic, Asio counts references with acquire and release instead.
#define BOOST_ASIO_DISABLE_STD_ATOMIC
#define BOOST_ASIO_DISABLE_FENCED_BLOCK
