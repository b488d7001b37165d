#include "tests/slurm/submitit_cases.h"

namespace slurm {
namespace {

using List = SubmititList;
using Dict = SubmititDict;

SubmititValue whole(std::int64_t value) {
  return value;
}
SubmititValue text(const char* value) {
  return std::string(value);
}
const SubmititValue kNone;

std::vector<SubmititCase> generic_cases() {
  return {
      {"nothing at all", {}},
      {"an empty call", {Dict{}}},
      {"name", {{{"name", text("train")}}}},
      {"name with spaces and quotes", {{{"name", text("it's a \"run\" 100% $HOME")}}}},
      {"name with a line break", {{{"name", text("two\nlines")}}}},
      {"empty name", {{{"name", text("")}}}},
      {"name beyond ASCII", {{{"name", text("größe")}}}},
      {"timeout_min", {{{"timeout_min", whole(60)}}}},
      {"mem_gb whole", {{{"mem_gb", whole(4)}}}},
      {"mem_gb as float", {{{"mem_gb", 16.0}}}},
      {"mem_gb half", {{{"mem_gb", 3.5}}}},
      {"mem_gb odd fraction", {{{"mem_gb", 0.3}}}},
      {"mem_gb zero", {{{"mem_gb", whole(0)}}}},
      {"nodes", {{{"nodes", whole(4)}}}},
      {"cpus_per_task", {{{"cpus_per_task", whole(10)}}}},
      {"gpus_per_node", {{{"gpus_per_node", whole(8)}}}},
      {"tasks_per_node", {{{"tasks_per_node", whole(8)}}}},
      {"stderr_to_stdout", {{{"stderr_to_stdout", true}}}},
      {"stderr_to_stdout off", {{{"stderr_to_stdout", false}}}},
      {"all generic ones",
       {{{"name", text("all")},
         {"timeout_min", whole(600)},
         {"mem_gb", whole(100)},
         {"nodes", whole(2)},
         {"cpus_per_task", whole(4)},
         {"gpus_per_node", whole(2)},
         {"tasks_per_node", whole(2)},
         {"stderr_to_stdout", true}}}},
      {"a bool where an int is", {{{"nodes", true}}}},
      {"None is not set", {{{"mem_gb", kNone}, {"nodes", whole(3)}}}},
      {"two calls, the later one counts",
       {{{"timeout_min", whole(5)}, {"nodes", whole(2)}}, {{"timeout_min", whole(9)}}}},
  };
}

std::vector<SubmititCase> slurm_cases() {
  std::vector<SubmititCase> cases;
  const std::vector<std::pair<const char*, const char*>> texts = {
      {"partition", "gpu,long"},     {"qos", "high"},
      {"account", "team a"},         {"constraint", "a100&ib|h100"},
      {"gres", "gpu:fake:2"},        {"exclude", "node[1-3],gpu-a"},
      {"nodelist", "node7"},         {"mem", "16GB"},
      {"mem_per_gpu", "32GB"},       {"mem_per_cpu", "2G"},
      {"comment", "why: 'because'"}, {"dependency", "afterok:12:13"},
      {"mail_type", "END,FAIL"},     {"mail_user", "a@b.org"},
      {"exclusive", "user"},         {"wckey", "k"},
      {"time", "1-12:00:00"},        {"job_name", "own"}};
  for (const auto& [name, value] : texts) cases.push_back({name, {{{std::string("slurm_") + name, text(value)}}}});
  const std::vector<const char*> numbers = {"time",          "nodes",        "ntasks_per_node",
                                            "cpus_per_task", "cpus_per_gpu", "gpus_per_node",
                                            "gpus_per_task", "num_gpus",     "signal_delay_s"};
  for (const auto* name : numbers) cases.push_back({name, {{{std::string("slurm_") + name, whole(3)}}}});
  const std::vector<SubmititCase> more = {
      {"comment with line breaks", {{{"slurm_comment", text("why:\n#SBATCH --nodes=9\r\n")}}}},
      {"exclusive as a flag", {{{"slurm_exclusive", true}}}},
      {"exclusive False is a value", {{{"slurm_exclusive", false}}}},
      {"num_gpus over gpus_per_node", {{{"gpus_per_node", whole(1)}, {"slurm_num_gpus", whole(4)}}}},
      {"time as a float", {{{"slurm_time", 12.5}}}},
      {"slurm_time over timeout_min", {{{"slurm_time", whole(7)}, {"timeout_min", whole(99)}}}},
      {"timeout_min after slurm_time", {{{"timeout_min", whole(99)}, {"slurm_time", whole(7)}}}},
      {"slurm_timeout_min over timeout_min", {{{"slurm_timeout_min", whole(7)}, {"timeout_min", whole(99)}}}},
      {"slurm_mem_gb is converted", {{{"slurm_mem_gb", 1.5}, {"mem_gb", whole(9)}}}},
      {"slurm_mem over mem_gb", {{{"mem_gb", whole(9)}, {"slurm_mem", text("1T")}}}},
      {"slurm_nodes over nodes", {{{"slurm_nodes", whole(3)}, {"nodes", whole(2)}}}},
      {"slurm_stderr_to_stdout", {{{"slurm_stderr_to_stdout", true}}}},
      {"setup", {{{"slurm_setup", List{"module load cuda", "export A='x y'"}}}}},
      {"setup lines with line breaks", {{{"slurm_setup", List{"if true\nthen echo x; fi", "\n"}}}}},
      {"empty setup", {{{"slurm_setup", List{}}}}},
      {"teardown", {{{"slurm_teardown", List{"echo done", "rm -f x"}}}}},
      {"setup and teardown", {{{"slurm_setup", List{"a"}}, {"slurm_teardown", List{"b"}}}}},
      {"srun_args", {{{"slurm_srun_args", List{"-vv", "--cpu-bind", "none", "--export=A=b c"}}}}},
      {"use_srun off", {{{"slurm_use_srun", false}}}},
      {"use_srun off with srun_args", {{{"slurm_use_srun", false}, {"slurm_srun_args", List{"-v"}}}}},
      {"use_srun off, stderr to stdout", {{{"slurm_use_srun", false}, {"stderr_to_stdout", true}}}},
      {"without prefix, still understood", {{{"partition", text("dev")}, {"qos", text("q")}}}},
      {"without prefix over with it", {{{"slurm_partition", text("a")}, {"partition", text("b")}}}},
      {"setup without prefix is the local executor's", {{{"setup", List{"lost"}}}}},
      {"hostile comment", {{{"slurm_comment", text("`id` $(id) ; & | > < * ? [a] {b} ~ ! \\ \"")}}}},
      {"a # inside", {{{"slurm_comment", text("a #b")}}}},
      {"tabs", {{{"slurm_comment", text("a\tb")}}}},
  };
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

std::vector<SubmititCase> additional_cases() {
  return {
      {"additional",
       {{{"slurm_additional_parameters", Dict{{"mail-user", text("blublu@fb.com")}, {"mail-type", text("BEGIN")}}}}}},
      {"additional flag", {{{"slurm_additional_parameters", Dict{{"requeue", true}}}}}},
      {"additional overrides all",
       {{{"name", text("a")},
         {"slurm_additional_parameters",
          Dict{{"job_name", text("b")}, {"signal", text("TERM@5")}, {"output", text("/dev/null")}}}}}},
      {"additional with dash and underscore",
       {{{"slurm_mail_user", text("a")}, {"slurm_additional_parameters", Dict{{"mail-user", text("b")}}}}}},
      {"additional numbers",
       {{{"slurm_additional_parameters",
          Dict{{"nice", whole(-5)}, {"x", 0.1}, {"y", 1e16}, {"z", 1e-5}, {"w", 100.0}}}}}},
      {"additional None and False", {{{"slurm_additional_parameters", Dict{{"a", kNone}, {"b", false}}}}}},
      {"additional, empty", {{{"slurm_additional_parameters", Dict{}}}}},
      {"additional sorts among the others",
       {{{"slurm_additional_parameters", Dict{{"zz", text("1")}, {"aa", text("2")}, {"Big", text("3")}}}}}},
      {"additional array and open-mode",
       {{{"slurm_additional_parameters", Dict{{"array", text("0-9")}, {"open-mode", text("truncate")}}}}},
       3},
  };
}

std::vector<SubmititCase> array_cases() {
  return {
      {"array of two", {}, 2},
      {"array with parallelism", {{{"slurm_array_parallelism", whole(4)}}}, 12},
      {"parallelism above the count", {{{"slurm_array_parallelism", whole(40)}}}, 3},
      {"parallelism equal to the count", {{{"slurm_array_parallelism", whole(3)}}}, 3},
      {"array beyond the default parallelism", {}, 300},
      {"array with stderr to stdout", {{{"stderr_to_stdout", true}}}, 5},
      {"parallelism of a single job is nothing", {{{"slurm_array_parallelism", whole(4)}}}},
      {"array of many nodes",
       {{{"nodes", whole(2)}, {"tasks_per_node", whole(4)}, {"slurm_partition", text("gpu")}}},
       4},
  };
}

std::vector<SubmititCase> folder_cases() {
  return {
      {"folder with a space", {}, 1, "/my run"},
      {"folder with quotes", {}, 1, "/it's \"this\""},
      {"folder with a line break", {}, 1, "/my\nrun"},
      {"folder with %j", {}, 1, "/%j"},
      {"folder with %A", {}, 3, "/%A"},
      {"folder with %t and %j", {}, 2, "/%j/%t"},
      {"folder with dollar and backslash", {}, 1, "/$HOME\\x"},
      {"folder with double slashes and dots", {}, 1, "//a/./b/"},
      {"folder beyond ASCII", {}, 1, "/läufe"},
  };
}

std::vector<SubmititCase> other_cases() {
  return {
      {"other clusters' are left out",
       {{{"local_setup", List{"x"}}, {"debug_nodes", whole(3)}, {"local_timeout_min", whole(9)}}}},
      {"unknown name", {{{"no_such_thing", whole(1)}}}},
      {"unknown name without underscore", {{{"foo", whole(1)}}}},
      {"unknown of slurm", {{{"slurm_foo", whole(1)}}}},
      {"unknown of another cluster", {{{"local_foo", whole(1)}}}},
      {"map_count is internal", {{{"slurm_map_count", whole(2)}}}},
      {"unknown executor", {{{"chronos_time", whole(1)}}}},
      {"unknown but None", {{{"slurm_foo", kNone}}}},
      {"a text where an int is", {{{"nodes", text("2")}}}},
      {"a float where an int is", {{{"timeout_min", 5.5}}}},
      {"a number where a text is", {{{"name", whole(5)}}}},
      {"an int where a bool is", {{{"stderr_to_stdout", whole(1)}}}},
      {"setup as one text", {{{"slurm_setup", text("module load")}}}},
  };
}

/// Meaningless values for which both write the same script.
std::vector<SubmititCase> odd_cases() {
  return {
      {"bools where numbers are",
       {{{"slurm_array_parallelism", true},
         {"timeout_min", true},
         {"slurm_signal_delay_s", false},
         {"gpus_per_node", false},
         {"mem_gb", true}}},
       3},
      {"array_parallelism as a text, for an array", {{{"slurm_array_parallelism", text("8")}}}, 3},
      {"array_parallelism as a float", {{{"slurm_array_parallelism", 2.5}}}, 3},
      {"setup as a dictionary", {{{"slurm_setup", Dict{{"a", whole(1)}}}}}},
      {"additional parameters as a text", {{{"slurm_additional_parameters", text("requeue")}}}},
  };
}

}  // namespace

std::vector<SubmititCase> submitit_nonsense() {
  return {
      {"array_parallelism as a text, for one task", {{{"slurm_array_parallelism", text("8")}}}},
      {"more memory than a number holds exactly", {{{"mem_gb", 1e13}}}},
      {"partition as a list", {{{"slurm_partition", List{"a", "b"}}}}},
      {"comment as a dictionary", {{{"slurm_comment", Dict{{"a", whole(1)}}}}}},
      {"a list among the additional parameters",
       {{{"slurm_additional_parameters", Dict{{"constraint", List{"a", "b"}}}}}}},
      {"a dictionary among the additional parameters",
       {{{"slurm_additional_parameters", Dict{{"constraint", Dict{{"a", whole(1)}}}}}}}},
  };
}

std::vector<SubmititCase> submitit_cases() {
  auto all = generic_cases();
  for (const auto& more :
       {slurm_cases(), additional_cases(), array_cases(), folder_cases(), other_cases(), odd_cases()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

}  // namespace slurm
