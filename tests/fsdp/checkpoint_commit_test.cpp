// Goal: a save publishes a whole checkpoint or nothing, removes only what may go, and a fenced attempt publishes
// nothing. Method: the small model on two ranks, with real files, disks that are full, and ranks that are frozen while
// they commit.
#include <gmock/gmock.h>
#include <signal.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <optional>

#include "tests/fsdp/checkpoint_fixture.h"
#include "tests/fsdp/error_of.h"

namespace {

/// False imitates a network file system, which cannot exchange two names in one step.
std::atomic<bool> can_exchange = true;

}  // namespace

/// Replaces the C library's renameat2.
extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  if ((flags & RENAME_EXCHANGE) != 0 && !can_exchange) {
    errno = EINVAL;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

namespace {

using fsdp::Checkpointer;
using fsdp::CheckpointOptions;
using fsdp::CheckpointState;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

TEST_F(Checkpoint, KeepsTheNewestAndTheJustSaved) {
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    CheckpointOptions two = options();
    two.keep = 2;
    Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, two);
    for (int step = 1; step <= 4; ++step) EXPECT_TRUE(checkpointer.save(state_of(step)).warnings.empty());
    EXPECT_THAT(checkpointer.wait_for_removal(), IsEmpty());
    mesh.shard().barrier();
    EXPECT_THAT(names_in(two.folder), ElementsAre("step-00000003", "step-00000004"));
    mesh.shard().barrier();
    // A run that went back: later checkpoints stay until they are replaced.
    two.keep = 1;
    Checkpointer(trainer.sharded, *trainer.optimizer, two).save(state_of(2));
    mesh.shard().barrier();
    EXPECT_THAT(names_in(two.folder), ElementsAre("step-00000002", "step-00000003", "step-00000004"));
  });
}

TEST_F(Checkpoint, KeepsAnOldOneThatTheCallerNamesBesideTheNewest) {
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    CheckpointOptions two = options();
    two.keep = 2;
    Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, two);
    const auto there = [&](std::int64_t step, std::optional<std::int64_t> also_keep) {
      EXPECT_TRUE(checkpointer.save(state_of(step), also_keep).warnings.empty());
      EXPECT_THAT(checkpointer.wait_for_removal(), IsEmpty());
      mesh.shard().barrier();
      auto names = names_in(two.folder);
      mesh.shard().barrier();
      return names;
    };
    for (int step = 1; step <= 4; ++step) there(step, 2);
    EXPECT_THAT(there(5, 2), ElementsAre("step-00000002", "step-00000004", "step-00000005"));
    EXPECT_THAT(there(6, 5), ElementsAre("step-00000005", "step-00000006")) << "it is one of the two newest";
    EXPECT_THAT(there(7, 99), ElementsAre("step-00000006", "step-00000007")) << "there is no such checkpoint";
    EXPECT_THAT(there(8, std::nullopt), ElementsAre("step-00000007", "step-00000008"));
  });
}

/// Records what happens to the entries of a folder, such as "moved step-00000001".
class FolderWatch {
 public:
  explicit FolderWatch(const fs::path& folder) : inotify_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    if (::inotify_add_watch(inotify_, folder.c_str(), IN_DELETE | IN_MOVED_FROM) < 0) std::abort();
  }
  ~FolderWatch() { ::close(inotify_); }
  FolderWatch(const FolderWatch&) = delete;
  FolderWatch& operator=(const FolderWatch&) = delete;

  std::vector<std::string> events() const {
    alignas(inotify_event) char buffer[16384];
    const ::ssize_t bytes = ::read(inotify_, buffer, sizeof buffer);
    std::vector<std::string> out;
    for (::ssize_t at = 0; at < bytes;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
      out.push_back(((event->mask & IN_DELETE) != 0 ? "removed " : "moved ") + std::string(event->name));
      at += static_cast<::ssize_t>(sizeof(inotify_event) + event->len);
    }
    return out;
  }

 private:
  int inotify_;
};

// Goal: a crash during the removal of an old checkpoint leaves no checkpoint that lacks files.
TEST_F(Checkpoint, TooOldIsRenamedBeforeItIsRemoved) {
  save_steps(2, {1});
  const FolderWatch watch(options().folder);
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    CheckpointOptions one = options();
    one.keep = 1;
    EXPECT_TRUE(Checkpointer(trainer.sharded, *trainer.optimizer, one).save(state_of(2)).warnings.empty());
  });
  EXPECT_THAT(watch.events(), ElementsAre("moved .tmp-step-00000002-attempt-1", "moved step-00000001",
                                          "removed .tmp-step-00000001-attempt-1"));
}

// Goal: the old best checkpoint stays until the new one is committed.
TEST_F(Checkpoint, NamedByTheCallerGoesOnlyAfterItsSuccessorIsCommitted) {
  CheckpointOptions one = options();
  one.keep = 1;
  const auto save = [&](std::int64_t step, std::int64_t also_keep, const std::string& against = "") {
    run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      CheckpointOptions with = one;
      with.may_commit = [against] { return against; };
      error_of([&] { Checkpointer(trainer.sharded, *trainer.optimizer, with).save(state_of(step), also_keep); });
    });
  };
  save(1, 1);
  save(2, 1);
  save(3, 3, "attempt 2 has begun");
  EXPECT_THAT(names_in(one.folder), ElementsAre("step-00000001", "step-00000002"));
  const FolderWatch watch(one.folder);
  save(3, 3);
  EXPECT_THAT(names_in(one.folder), ElementsAre("step-00000003"));
  EXPECT_EQ(watch.events().front(), "moved .tmp-step-00000003-attempt-1") << "published first";
}

TEST_F(Checkpoint, OfTheSameStepIsReplaced) {
  save_steps(2, {2});
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    CheckpointState state = state_of(2);
    state.extra["second"] = true;
    Checkpointer(trainer.sharded, *trainer.optimizer, options(2)).save(state);
  });
  EXPECT_THAT(names_in(options().folder), ElementsAre("step-00000002"));
  EXPECT_TRUE(fsdp::latest_valid(options().folder)->manifest.at("extra").contains("second"));
  EXPECT_EQ(fsdp::latest_valid(options().folder)->attempt, 2);
}

TEST_F(Checkpoint, OfAFencedAttemptIsNotPublished) {
  save_steps(2, {1});
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    CheckpointOptions fenced = options();
    fenced.may_commit = [&] {
      EXPECT_EQ(mesh.rank(), 0);
      EXPECT_TRUE(fs::exists(fenced.folder / ".tmp-step-00000002-attempt-1" / "manifest.json")) << "asked last";
      return std::string("attempt 2 has begun");
    };
    Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, fenced);
    try {
      checkpointer.save(state_of(2));
      ADD_FAILURE() << "saved";
    } catch (const fsdp::CheckpointFenced& error) {
      EXPECT_STREQ(error.what(), "checkpoint of step 2 not saved: attempt 2 has begun");
    }
  });
  EXPECT_THAT(names_in(options().folder), ElementsAre("step-00000001"));
}

/// Rank 0 of attempt 1 is frozen while it commits step 2. Meanwhile attempt 2 begins and may save the same step.
class FrozenCommit : public Checkpoint, public ::testing::WithParamInterface<bool> {
 protected:
  FrozenCommit() { can_exchange = GetParam(); }
  ~FrozenCommit() override { can_exchange = true; }

  void begin_attempt_2() { newest_ = 2; }
  /// Publishes step 2 as attempt 2 would: whole, in one step.
  void publish_of_attempt_2() {
    const auto target = step_path(2), away = folder_.path() / "replaced";
    if (fs::exists(target)) fs::rename(target, away);
    fs::rename(folder_.path() / "elsewhere" / "step-00000002", target);
    fs::remove_all(away);
  }
  /// Saves step 2 as attempt 1, which must find out that it is fenced.
  void save_frozen(const std::function<void()>& before_rename, const std::function<void()>& after_rename) {
    save_steps(2, {1});
    run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      CheckpointOptions other = options(2);
      other.folder = folder_.path() / "elsewhere";
      Checkpointer(trainer.sharded, *trainer.optimizer, other).save(state_of(2));
    });
    run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      CheckpointOptions frozen = options(1);
      int asked = 0;
      frozen.may_write = [&, asked]() mutable {
        EXPECT_EQ(mesh.rank(), 0);
        if (++asked == 2) after_rename();
        return newest_ == 1 ? std::string() : "attempt 2 has begun";
      };
      frozen.may_commit = [&] {
        before_rename();
        return std::string();  // this call had returned before the rank was frozen
      };
      try {
        Checkpointer(trainer.sharded, *trainer.optimizer, frozen).save(state_of(2));
        ADD_FAILURE() << "saved";
      } catch (const fsdp::CheckpointFenced& error) {
        EXPECT_STREQ(error.what(), "checkpoint of step 2 not saved: attempt 2 has begun");
      }
    });
  }
  std::atomic<int> newest_ = 1;
};
INSTANTIATE_TEST_SUITE_P(FileSystems, FrozenCommit, ::testing::Bool(),
                         [](const auto& param) { return std::string(param.param ? "Exchange" : "NoExchange"); });

TEST_P(FrozenCommit, IsWithdrawn) {
  save_frozen([&] { begin_attempt_2(); }, [&] { EXPECT_EQ(fsdp::latest_valid(options().folder)->step, 2); });
  EXPECT_THAT(names_in(options().folder), ElementsAre("step-00000001"));
}

TEST_P(FrozenCommit, PutsBackTheNewerAttemptsCheckpointOfTheSameStep) {
  save_frozen(
      [&] {
        begin_attempt_2();
        publish_of_attempt_2();
      },
      [&] { EXPECT_EQ(fsdp::latest_valid(options().folder)->attempt, 1) << "it has taken its place"; });
  EXPECT_THAT(names_in(options().folder), ElementsAre("step-00000001", "step-00000002"));
  EXPECT_EQ(fsdp::latest_valid(options().folder)->attempt, 2);
  EXPECT_EQ(load(2).first, 2) << "all of it is there";
}

TEST_P(FrozenCommit, LeavesWhatTheNewerAttemptHasPutInItsPlaceMeanwhile) {
  save_frozen([&] { begin_attempt_2(); }, [&] { publish_of_attempt_2(); });
  EXPECT_THAT(names_in(options().folder), ElementsAre("step-00000001", "step-00000002"));
  EXPECT_EQ(fsdp::latest_valid(options().folder)->attempt, 2);
  EXPECT_EQ(load(2).first, 2);
}

TEST_F(Checkpoint, OfAFencedAttemptIsNotEvenBegun) {
  save_steps(2, {1});
  const auto long_ago = fs::last_write_time(options().folder) - std::chrono::hours(24);
  fs::last_write_time(options().folder, long_ago);
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    CheckpointOptions fenced = options();
    fenced.may_write = [] { return std::string("attempt 2 has begun"); };
    EXPECT_THROW(Checkpointer(trainer.sharded, *trainer.optimizer, fenced).save(state_of(2)), fsdp::CheckpointFenced);
  });
  EXPECT_EQ(fs::last_write_time(options().folder), long_ago) << "something was written and removed again";
}

TEST_F(Checkpoint, OldOnesStayWhenTheAttemptIsFencedAfterItsCommit) {
  save_steps(2, {1});
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    CheckpointOptions late = options();
    late.keep = 1;
    int asked = 0;
    late.may_write = [&asked] { return ++asked <= 2 ? std::string() : "attempt 2 has begun"; };
    Checkpointer(trainer.sharded, *trainer.optimizer, late).save(state_of(2));
  });
  EXPECT_THAT(names_in(options().folder), ElementsAre("step-00000001", "step-00000002"));
}

TEST_F(Checkpoint, ThatOneRankCannotWriteIsTheSameErrorOnAll) {
  save_steps(2, {1});
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, options());
    CheckpointState state = state_of(2);
    if (mesh.rank() == 1) state.rank_tensors["bad"] = at::ones({1}, at::kComplexFloat);
    EXPECT_THAT(error_of([&] { checkpointer.save(state); }),
                HasSubstr("checkpoint of step 2 not saved: rank 1: safetensors cannot hold dtype"));
    state.rank_tensors.clear();
    EXPECT_EQ(error_of([&] { checkpointer.save(state); }), "no error") << "the next one works";
  });
  EXPECT_THAT(names_in(options().folder), ElementsAre("step-00000001", "step-00000002"));
}

TEST_F(Checkpoint, ThatOutgrowsItsFileLimitLeavesTheEarlierOnes) {
  save_steps(2, {1});
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 4096;
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, options());
    mesh.shard().barrier();
    if (mesh.rank() == 0) ::setrlimit(RLIMIT_FSIZE, &small);
    mesh.shard().barrier();
    EXPECT_THAT(error_of([&] { checkpointer.save(state_of(2)); }),
                ::testing::MatchesRegex("checkpoint of step 2 not saved: rank 0: cannot write .*rank-00000-of-00002"
                                        ".safetensors beyond 4096 bytes: File too large.*"));
    mesh.shard().barrier();
    if (mesh.rank() == 0) ::setrlimit(RLIMIT_FSIZE, &before);
  });
  EXPECT_THAT(names_in(options().folder), ElementsAre("step-00000001"));
  EXPECT_EQ(load(2).first, 1);
}

TEST_F(Checkpoint, OnAFullOrReadOnlyDiskFailsCleanly) {
  fs::create_directories(options().folder);
  const std::string folder = options().folder.string();
  if (::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "no right to mount a small file system; the file limit's test covers the path";
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, options());
    checkpointer.save(state_of(1));
    EXPECT_THAT(error_of([&] { checkpointer.save(state_of(2)); }), HasSubstr("No space left on device"));
    mesh.shard().barrier();
    if (mesh.rank() == 0) ::mount("tmpfs", folder.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "size=64k");
    mesh.shard().barrier();
    EXPECT_THAT(error_of([&] { checkpointer.save(state_of(3)); }), HasSubstr("Read-only file system"));
  });
  EXPECT_THAT(names_in(options().folder), ElementsAre("step-00000001"));
  EXPECT_EQ(load(2).first, 1);
  ::umount2(folder.c_str(), MNT_DETACH);
}

TEST_F(Checkpoint, LeftoversOfThisAndEarlierAttemptsAreRemoved) {
  save_steps(2, {1});
  for (const char* name : {".tmp-step-00000002-attempt-1", ".tmp-step-00000002-attempt-2",
                           ".tmp-step-00000002-attempt-3", ".tmp-unrelated", "notes"})
    fs::create_directories(options().folder / name / "inside");
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    Checkpointer(trainer.sharded, *trainer.optimizer, options(2)).remove_stale();
  });
  EXPECT_THAT(names_in(options().folder),
              ElementsAre(".tmp-step-00000002-attempt-3", ".tmp-unrelated", "notes", "step-00000001"));
}

}  // namespace
