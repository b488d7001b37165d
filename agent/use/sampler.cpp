#include "agent/use/sampler.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/fd.h"
#include "base/process_use.h"
#include "base/signals_blocked.h"

namespace agent::use {
namespace {

using Clock = std::chrono::steady_clock;

/// Values that the GPUs gave longer ago than so many pauses are not told.
constexpr int kGpusOldAfter = 3;

std::int64_t wall_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

}  // namespace

/// The state that the threads use, for as long as one of them is there.
struct Sampler::Shared {
  struct Watched {
    Rank rank;
    base::ProcessUseMeter meter;
  };

  explicit Shared(SamplerOptions from) : options(std::move(from)), event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!event) throw std::system_error(errno, std::generic_category(), "cannot watch what ranks use");
  }

  void watch_processes() {
    for (int looks = 0;; ++looks) {
      try {
        look();
      } catch (const std::exception&) {  // the kernel cannot be asked now
      }
      if (!pause(looks)) break;
    }
  }

  void look() {
    {
      const std::lock_guard lock(mutex);
      std::erase_if(watched, [&](const auto& one) { return std::ranges::find(ended, one.rank.number) != ended.end(); });
    }
    if (watched.empty()) return;
    const auto processes = base::all_processes(options.proc, true);
    const auto now = Clock::now();
    const auto gpus_said = gpus_now();
    std::map<std::uint32_t, protocol::RankUse> seen;
    for (auto& [rank, meter] : watched) {
      const auto used = meter.look(processes, now);
      if (!used) continue;
      protocol::RankUse use{.at_ms = wall_ms(),
                            .cores = used->cores,
                            .memory_bytes = used->memory_bytes,
                            .memory_peak_bytes = used->memory_peak_bytes,
                            .processes = used->processes,
                            .gpu_percent = {},
                            .gpu_memory_bytes = {}};
      if (const auto gpu = base::use_of(gpus_said, rank.visible_devices, meter.pids())) {
        use.gpu_percent = gpu->busy_percent;
        use.gpu_memory_bytes = gpu->memory_bytes;
      }
      seen.emplace(rank.number, use);
    }
    const std::lock_guard lock(mutex);
    for (const auto rank : ended) seen.erase(rank);
    samples = std::move(seen);
    ::eventfd_write(event.get(), 1);
  }

  std::vector<base::GpuLook> gpus_now() {
    const std::lock_guard lock(mutex);
    if (Clock::now() - gpus_at > kGpusOldAfter * options.longest_pause) gpus.clear();
    return gpus;
  }

  void watch_gpus() {
    const auto driver = options.open_gpus();
    for (int looks = 0; driver != nullptr; ++looks) {
      auto looked = driver->look();
      {
        const std::lock_guard lock(mutex);
        gpus = std::move(looked);
        gpus_at = Clock::now();
      }
      if (!pause(looks)) return;
    }
  }

  static void begin(const std::shared_ptr<Shared>& shared, void (Shared::*work)()) {
    {
      const std::lock_guard lock(shared->mutex);
      ++shared->threads;
    }
    const auto end = [shared] {
      const std::lock_guard lock(shared->mutex);
      --shared->threads;
      shared->wake.notify_all();
    };
    try {
      std::thread([shared, work, end] {
        (*shared.*work)();
        end();
      }).detach();
    } catch (const std::system_error&) {
      end();
      throw;
    }
  }

  /// False: it is time to leave. Pauses grow from the first to the longest.
  bool pause(int done) {
    auto time = options.first_pause;
    for (int i = 0; i < done && time < options.longest_pause; ++i) time *= 2;
    std::unique_lock lock(mutex);
    return !wake.wait_for(lock, std::min(time, options.longest_pause), [this] { return quit; });
  }

  const SamplerOptions options;
  const base::Fd event;
  std::list<Watched> watched;  // the thread that looks at processes alone

  std::mutex mutex;
  std::condition_variable wake;
  bool quit = false;
  int threads = 0;  // that are there
  std::map<std::uint32_t, protocol::RankUse> samples;
  std::vector<std::uint32_t> ended;
  std::vector<base::GpuLook> gpus;
  Clock::time_point gpus_at{};
};

Sampler::Sampler(std::vector<Rank> ranks, SamplerOptions options)
    : shared_(std::make_shared<Shared>(std::move(options))) {
  for (auto& rank : ranks) {
    const auto pid = rank.pid;
    shared_->watched.push_back({std::move(rank), base::ProcessUseMeter(pid, shared_->options.proc)});
  }
  const base::SignalsBlocked blocked;
  Shared::begin(shared_, &Shared::watch_processes);
  try {
    Shared::begin(shared_, &Shared::watch_gpus);
  } catch (const std::system_error&) {  // no more threads now: processes are seen, GPUs are not
  }
}

Sampler::~Sampler() {
  std::unique_lock lock(shared_->mutex);
  shared_->quit = true;
  shared_->wake.notify_all();
  shared_->wake.wait_for(lock, kPatience, [this] { return shared_->threads == 0; });
}

int Sampler::fd() const {
  return shared_->event.get();
}

std::map<std::uint32_t, protocol::RankUse> Sampler::newest() {
  eventfd_t count = 0;
  ::eventfd_read(shared_->event.get(), &count);
  const std::lock_guard lock(shared_->mutex);
  return shared_->samples;
}

void Sampler::ended(std::uint32_t rank) {
  const std::lock_guard lock(shared_->mutex);
  shared_->ended.push_back(rank);
  shared_->samples.erase(rank);
}

}  // namespace agent::use
