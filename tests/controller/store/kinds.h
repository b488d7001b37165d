#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "store/memory_store.h"
#include "store/sqlite_store.h"
#include "temporary_folder.h"

namespace test {

// The kinds of stores that must keep the contract of store/store.h.
struct Memory {
  store::MemoryStore store;
  store::Store& get() { return store; }
};
struct Sqlite {
  TemporaryFolder folder;
  std::unique_ptr<store::Store> store = store::open_sqlite_store(folder.path() / "muster.db");
  store::Store& get() { return *store; }
};
using StoreKinds = testing::Types<Memory, Sqlite>;

}  // namespace test
