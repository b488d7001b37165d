#include "worker/starter/torch_beside.h"

#include <gmock/gmock.h>

#include <string>

#include "base/usage_error.h"
#include "tests/temporary_folder.h"

namespace starter {
namespace {

namespace fs = std::filesystem;
using ::test::write_file;
using ::testing::HasSubstr;

constexpr const char* kSite = "lib/python3.98/site-packages";  // of a Python that no machine has

/// A virtual environment with the wheel's builds.
struct Environment {
  ::test::TemporaryFolder folder;
  fs::path prefix = folder / "venv";
  fs::path site = prefix / kSite;
  fs::path home = folder / "home";
  fs::path program = prefix / "bin/muster-worker";

  Environment() {
    add_builds(site);
    fs::create_directory_symlink("lib", prefix / "lib64");  // as python3 -m venv does
    set_system("false");
  }
  void add_builds(const fs::path& at) const {
    for (const char* build : {"2.9/cpu", "2.15/cpu", "2.11/cpu", "2.11/cuda13", "2.13.old/cpu"})
      write_file(at / "muster_hpc_worker" / build / "muster-worker", "");
  }
  void set_system(const std::string& shown) const {
    write_file(prefix / "pyvenv.cfg", "home = " + (folder / "python/bin").native() +
                                          "\ninclude-system-site-packages = " + shown + "\nversion = 3.98.1\n");
  }
  void add_torch(const fs::path& at, const std::string& version, const std::string& cuda = "None") const {
    write_file(at / "torch/version.py",
               "from typing import Optional\n\n__all__ = ['__version__', 'cuda']\n__version__ = '" + version +
                   "'\ndebug = False\ncuda: Optional[str] = " + cuda + "\n");
    write_file(at / "torch/lib/libtorch_cpu.so", "");
  }
  Build find() const { return find_build(program, home); }
  std::string refused() const {
    try {
      return "taken: " + find().program.native();
    } catch (const base::UsageError& error) {
      return error.what();
    }
  }
};

TEST(Starter, TakesTheBuildOfTheTorchBesideIt) {
  const Environment its;
  its.add_torch(its.site, "2.15.3+cpu");
  const auto build = its.find();
  EXPECT_EQ(build.program, its.site / "muster_hpc_worker/2.15/cpu/muster-worker");
  EXPECT_EQ(build.libraries, its.site / "torch/lib");
}

TEST(Starter, TakesTheBuildForCudaWhereTorchHasThatMajorVersion) {
  const Environment its;
  its.add_torch(its.site, "2.11.0+cu130", "'13.0'");
  EXPECT_EQ(its.find().program, its.site / "muster_hpc_worker/2.11/cuda13/muster-worker");
  EXPECT_EQ(its.find().libraries, (its.site / "torch/lib").native() + ":" + (its.site / "nvidia/cu13/lib").native());
  its.add_torch(its.site, "2.11.0+cu126", "'12.6'");
  EXPECT_EQ(its.find().program, its.site / "muster_hpc_worker/2.11/cpu/muster-worker");
  its.add_torch(its.site, "2.15.0+cu132", "'13.2'");
  EXPECT_EQ(its.find().program, its.site / "muster_hpc_worker/2.15/cpu/muster-worker");
}

TEST(Starter, RefusesATorchWithoutItsLibraries) {
  const Environment its;
  its.add_torch(its.site, "2.11.0");
  fs::remove_all(its.site / "torch/lib");
  EXPECT_EQ(its.refused(), "torch 2.11.0 in " + its.site.native() +
                               " has no lib/libtorch_cpu.so, which the torch of pip has; run pip install "
                               "'torch==2.15.*' in the same environment");
}

TEST(Starter, NamesTheVersionsThatFitAndHowToGetOne) {
  const Environment its;
  for (const char* version : {"2.13.1", "2.1.0", "2.150.0", "3.11.0", ""}) {
    its.add_torch(its.site, version);
    EXPECT_EQ(its.refused(), std::string("torch ") + version + " in " + its.site.native() +
                                 " does not fit: this muster-worker has builds for torch 2.9, 2.11 and 2.15; run pip "
                                 "install 'torch==2.15.*' in the same environment");
  }
  fs::remove_all(its.site / "torch");
  EXPECT_EQ(its.refused(),
            "there is no torch in " + its.site.native() + "; run pip install 'torch==2.15.*' in the same environment");
  fs::remove_all(its.site / "muster_hpc_worker");
  EXPECT_THAT(its.refused(), HasSubstr("there is no muster_hpc_worker in " + its.site.native()));
}

TEST(Starter, LooksInThePackagesOfThePythonBelowWhereTheEnvironmentShowsThem) {
  const Environment its;
  its.add_torch(its.folder / "python" / kSite, "2.11.0");
  its.add_torch(its.folder / "python/lib/python3.97/site-packages", "2.15.0");
  EXPECT_THAT(its.refused(), HasSubstr("there is no torch in " + its.site.native() + ";"));
  its.set_system("true");
  EXPECT_EQ(its.find().libraries, (its.folder / "python" / kSite) / "torch/lib");
  its.add_torch(its.home / ".local" / kSite, "2.9.1");
  EXPECT_EQ(its.find().libraries, (its.home / ".local" / kSite) / "torch/lib");
  its.add_torch(its.site, "2.15.0");
  EXPECT_EQ(its.find().libraries, its.site / "torch/lib");
}

TEST(Starter, BelongsToThePackagesOfItsOwnPlaceAlone) {
  const Environment its;
  const auto target = its.folder / "target";  // of pip install --target
  its.add_builds(target);
  its.add_torch(target, "2.11.0");
  its.add_torch(its.home / ".local" / kSite, "2.15.0");
  EXPECT_EQ(find_build(target / "bin/muster-worker", its.home).libraries, target / "torch/lib");
  fs::remove_all(target / "torch");
  EXPECT_THROW(find_build(target / "bin/muster-worker", its.home), base::UsageError);
}

TEST(Starter, OfAPackageTakesTheLibTorchOfThePackageWithoutATorchOfTheAdmin) {
  const Environment its;  // of the same prefix, for a program of pip in another folder bin
  its.add_torch(its.site, "2.11.0");
  const auto own = its.prefix / "lib/muster", of_admin = its.prefix / "local/lib/muster";
  its.add_builds(own);
  its.add_torch(own, "2.15.0");
  EXPECT_EQ(its.find().program, own / "muster_hpc_worker/2.15/cpu/muster-worker");
  EXPECT_EQ(its.find().libraries, own / "torch/lib");
  its.add_torch(of_admin, "2.11.0", "'13.0'");
  EXPECT_EQ(its.find().program, own / "muster_hpc_worker/2.11/cuda13/muster-worker");
  EXPECT_EQ(its.find().libraries, (of_admin / "torch/lib").native() + ":" + (of_admin / "nvidia/cu13/lib").native());
  its.add_torch(of_admin, "2.8.0");
  EXPECT_EQ(its.refused(), "torch 2.8.0 in " + of_admin.native() +
                               " does not fit: this muster-worker has builds for torch 2.9, 2.11 and 2.15; run pip "
                               "install --target " +
                               of_admin.native() + " 'torch==2.15.*'");
  for (const auto& site : {own, of_admin}) fs::remove_all(site / "torch");
  EXPECT_THAT(its.refused(), HasSubstr("there is no torch in " + of_admin.native() + ", " + own.native() + ";"));
}

TEST(Starter, TakesThePythonThatHasTheWheelAmongSeveral) {
  const Environment its;
  its.add_torch(its.prefix / "lib/python3.99/site-packages", "2.15.0");
  its.add_torch(its.site, "2.11.0");
  EXPECT_EQ(its.find().libraries, its.site / "torch/lib");
  its.add_builds(its.prefix / "lib/python3.100/site-packages");
  its.add_torch(its.prefix / "lib/python3.100/site-packages", "2.9.0");
  // Older ones, so that a folder's own order is not that of the versions by luck.
  for (int minor = 80; minor < 96; ++minor) {
    const auto older = its.prefix / ("lib/python3." + std::to_string(minor)) / "site-packages";
    its.add_builds(older);
    its.add_torch(older, "2.15.0");
  }
  EXPECT_EQ(its.find().libraries, its.prefix / "lib/python3.100/site-packages/torch/lib");
}

}  // namespace
}  // namespace starter
