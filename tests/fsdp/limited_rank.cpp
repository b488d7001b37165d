// One rank of memory_limit_test.cpp: a process whose address space may grow by few bytes only.
//   fsdp_limited_rank whole|sharded|exporting RANK RANKS ALLOWANCE FOLDER
// Exit codes: 0 all is right; 3 out of memory; 1 anything else, with its text on stderr.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <new>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>

#include "fsdp/engine/initialize.h"
#include "fsdp/files/export.h"
#include "fsdp/files/tensor_files.h"
#include "tests/fsdp/limited_model.h"

namespace {

/// Bytes of this process's address space now: what LibTorch and the C library take.
std::int64_t address_space() {
  std::ifstream in("/proc/self/statm");
  std::int64_t pages = 0;
  in >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

void limit_growth(std::int64_t allowance) {
  const auto limit = static_cast<rlim_t>(address_space() + allowance);
  const rlimit both{limit, limit};
  TORCH_CHECK(::setrlimit(RLIMIT_AS, &both) == 0, "cannot limit the address space");
}

/// Makes LibTorch and the mesh take what they take once.
void warm_up(fsdp::DeviceMesh& mesh) {
  const auto model = std::make_shared<LimitedModel>(1, 8);
  fsdp::ShardedModel sharded(model, mesh);
  sharded.fully_shard(model);
  fill_limited(sharded);
  sharded.gather_full_state();
  mesh.shard().barrier();
}

void whole(const std::filesystem::path& folder) {
  LimitedModel model;
  const fsdp::TensorFiles files(folder);
  for (const auto& item : model.named_parameters())
    files.tensors().at(item.key()).file->read(item.key(), 0, item.value().detach());
}

/// A model from the meta device, each block a unit.
struct Sharded {
  explicit Sharded(fsdp::DeviceMesh& mesh) : model(on_meta()), sharded(model, mesh) {
    for (const auto& block : model->blocks) sharded.fully_shard(block);
    sharded.fully_shard(model);
  }
  static std::shared_ptr<LimitedModel> on_meta() {
    const fsdp::MetaDeviceGuard guard;
    return std::make_shared<LimitedModel>();
  }
  std::shared_ptr<LimitedModel> model;
  fsdp::ShardedModel sharded;
};

void write_out(fsdp::ShardedModel& sharded, const std::filesystem::path& folder) {
  fsdp::ExportOptions options;
  options.folder = folder / "out";
  options.max_file_bytes = LimitedModel::kBytes / 5;
  fsdp::export_model(sharded, options);
}

void sharded(fsdp::DeviceMesh& mesh, const std::filesystem::path& folder) {
  Sharded model(mesh);
  fsdp::ShardedModel& sharded = model.sharded;
  fsdp::initialize(sharded, 1,
                   [](const auto&, const at::Tensor& values, at::Generator& random) { values.normal_(0, 1, random); });
  fsdp::load_tensors(sharded, fsdp::TensorFiles(folder));
  check_limited(sharded);
  write_out(sharded, folder);
}

void exporting(fsdp::DeviceMesh& mesh, const std::filesystem::path& folder) {
  Sharded model(mesh);
  fill_limited(model.sharded);
  write_out(model.sharded, folder);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    TORCH_CHECK(argc == 6, "want five arguments");
    const std::string mode = argv[1];
    const int rank = std::stoi(argv[2]), ranks = std::stoi(argv[3]);
    const std::filesystem::path folder = argv[5];
    at::set_num_threads(1);
    const auto store = c10::make_intrusive<c10d::FileStore>((folder / "store").string(), ranks);
    fsdp::MeshOptions options;
    options.shared_memory = false;  // the limit is on address space, and what peers show would count as this rank's
    fsdp::DeviceMesh mesh(store, rank, ranks, options);
    warm_up(mesh);
    limit_growth(std::stoll(argv[4]));
    if (mode == "whole") whole(folder);
    if (mode == "sharded") sharded(mesh, folder);
    if (mode == "exporting") exporting(mesh, folder);
    mesh.shard().barrier();
    return 0;
  } catch (const std::bad_alloc&) {
    return 3;
  } catch (const std::exception& error) {
    const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
    const std::string text = c10_error != nullptr ? c10_error->what_without_backtrace() : error.what();
    if (text.find("can't allocate memory") != std::string::npos) return 3;
    std::fprintf(stderr, "%s\n", text.c_str());
    return 1;
  }
}
