"""The check of the house must see what it is for: each test breaks one rule in a small tree and expects its line."""

import importlib.util
import pathlib
import sys
import unittest

from tree import check_tree

CHECK = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_house.py"


def load_check():
    spec = importlib.util.spec_from_file_location("check_house", CHECK)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(CHECK.parent))  # where it finds what it imports, as a script does
    spec.loader.exec_module(module)
    return module


class CheckHouse(unittest.TestCase):
    def check(self, files):
        return check_tree(CHECK, files)

    def test_a_tree_in_order_passes(self):
        code, out = self.check({"controller/core/job.h": "#include <string>\n",
                                "controller/core/README.md": "# controller/core\n",
                                "controller/store/store.h": '#include "controller/core/job.h"\n',
                                "controller/store/README.md": "line\n" * 15})
        self.assertEqual((code, out), (0, ""))

    def test_an_include_is_a_path_in_the_repository(self):
        code, out = self.check({"controller/core/job.h": "", "controller/core/apply.cpp": '#include "job.h"\n'})
        self.assertEqual(code, 1)
        self.assertIn("controller/core/apply.cpp: includes job.h; say controller/core/job.h", out)

    def test_a_namespace_follows_the_folder(self):
        end = "}}  // namespace {}\n"
        code, out = self.check({"controller/core/job.h": end.format("jobs"), "agent/rank/grpc/client.h": end.format("agent::rank"),
                                "agent/task/task.h": end.format("agent"), "spec/key.h": end.format("spec::testing")})
        self.assertEqual(code, 1)
        self.assertIn("controller/core/job.h: namespace jobs, which names no folder above the file", out)
        self.assertIn("agent/task/task.h: namespace agent, which", out)
        self.assertNotIn("client.h: namespace", out)
        self.assertNotIn("key.h: namespace", out)

    def test_no_two_files_have_one_name(self):
        code, out = self.check({"base/text.h": "", "base/text.cpp": "", "cli/text.cpp": "", "base/main.cpp": "", "cli/main.cpp": ""})
        self.assertEqual(code, 1)
        self.assertIn("cli/text: has the name of base/text; a reader who looks for one finds two", out)
        self.assertEqual(out.count("has the name of"), 1)

    def test_each_folder_has_a_short_readme(self):
        code, out = self.check({"controller/core/job.h": "", "controller/store/store.h": "", "controller/store/README.md": "line\n" * 16})
        self.assertEqual(code, 1)
        self.assertIn("controller/core: no README.md", out)
        self.assertIn("controller/store/README.md: 16 lines, of 15 at most", out)

    def test_the_core_may_not_include_the_store(self):
        code, out = self.check({"controller/store/store.h": "", "controller/core/job.h": '#include "controller/store/store.h"\n'})
        self.assertEqual(code, 1)
        self.assertIn("controller/core may not include controller/store", out)

    def test_rules_that_let_in_a_cycle_are_named(self):
        check = load_check()
        self.assertEqual(check.cycles({"a": {"b", "json"}, "b": {"c"}, "c": set()}), [])
        two = check.cycles({"jobs": {"ranks"}, "ranks": {"base", "jobs"}, "base": set()})
        self.assertEqual([set(path) for path in two], [{"jobs", "ranks"}])
        three = check.cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
        self.assertEqual([set(path) for path in three], [{"a", "b", "c"}])

    def test_the_rules_of_this_house_let_in_no_cycle(self):
        check = load_check()
        self.assertEqual(check.cycles(check.ALLOWED), [])
        check.ALLOWED["controller/common"] = {"controller/service"}
        self.assertTrue(any("a cycle of folders: " in line for line in check.violations(CHECK.parents[1])))

    def test_models_may_not_know_of_sharding(self):
        code, out = self.check({"fsdp/engine/unit.h": "", "worker/models/llama.h": '#include "fsdp/engine/unit.h"\n'})
        self.assertEqual(code, 1)
        self.assertIn("worker/models may not include fsdp", out)

    def test_nothing_includes_the_controller(self):
        code, out = self.check({"controller/core/job.h": "", "worker/train/loop.h": '#include "controller/core/job.h"\n'})
        self.assertEqual(code, 1)
        self.assertIn("worker/train may not include controller/core", out)

    def test_the_core_may_not_link_the_store(self):
        files = {"controller/core/job.h": "", "controller/core/README.md": "# core\n", "controller/store/CMakeLists.txt": "muster_library(muster_store SOURCES store.cpp)\n"}
        core = "muster_library(muster_core SOURCES job.cpp DEPENDS\n  {})\n"
        code, out = self.check(files | {"controller/core/CMakeLists.txt": core.format("muster_store")})
        self.assertEqual(code, 1)
        self.assertIn("muster_core links muster_store, but controller/core may not link controller/store", out)
        self.assertEqual(self.check(files | {"controller/core/CMakeLists.txt": core.format("")})[0], 0)

    def test_models_may_not_link_grpc(self):
        code, out = self.check({"worker/models/a.h": "", "worker/CMakeLists.txt":
                                "muster_library(worker_models SOURCES models/a.cpp)\n"
                                "target_link_libraries(worker_models PUBLIC PkgConfig::GRPCPP)\n"})
        self.assertEqual(code, 1)
        self.assertIn("worker/models may not link grpc", out)

    def test_grpc_and_libtorch_never_meet_even_through_another_header(self):
        code, out = self.check({"worker/models/a.h": "#include <ATen/ATen.h>\n",
                                "worker/train/b.h": '#include "worker/models/a.h"\n#include <grpcpp/grpcpp.h>\n'})
        self.assertEqual(code, 1)
        self.assertIn("sees headers of both", out)

    def test_an_empty_tree_is_no_success(self):
        self.assertEqual(self.check({})[0], 1)


if __name__ == "__main__":
    unittest.main()
