#pragma once
// Stands in for Gloo's rendezvous/store.h: LibTorch's header of ProcessGroupGloo derives a class from it, which only
// libtorch_cpu makes instances of.
#include <chrono>
#include <string>
#include <vector>

namespace gloo::rendezvous {

class Store {
 public:
  virtual ~Store();
  virtual void set(const std::string& key, const std::vector<char>& value) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout);
};

}  // namespace gloo::rendezvous
