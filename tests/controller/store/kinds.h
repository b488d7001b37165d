#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "controller/store/sqlite_store.h"
#include "tests/controller/store/memory_store.h"
#include "tests/temporary_folder.h"

namespace test {

/// The hour in which the clocks of the stores below begin.
inline constexpr core::Time kFirstHour{std::chrono::hours(500'000)};

// The kinds of stores that must keep the contract of controller/store/store.h. `now`: the time by which their metrics
// age.
struct Memory {
  core::Time now = kFirstHour;
  store::MemoryStore store{[this] { return now; }};
  store::Store& get() { return store; }
  /// Does to the store what a restart of musterd does.
  void open_again() {}
};
struct Sqlite {
  core::Time now = kFirstHour;
  TemporaryFolder folder;
  std::unique_ptr<store::Store> store = open();
  store::Store& get() { return *store; }
  void open_again() {
    store.reset();
    store = open();
  }

 private:
  std::unique_ptr<store::Store> open() {
    return store::open_sqlite_store(folder.path() / "muster.db", {.now = [this] { return now; }});
  }
};
using StoreKinds = testing::Types<Memory, Sqlite>;

}  // namespace test
