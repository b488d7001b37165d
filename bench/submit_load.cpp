// submit_load ADDRESS TOKEN_FILE JOB_FILE JOBS CALLERS: submits one job file so many times, each its own call, from so
// many callers at once, as a script with many submissions does without a process for each. Prints a line of JSON: jobs,
// seconds, and the slowest and the median answer in milliseconds. An answer means that the job is on disk.
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "muster/v1/job_service.grpc.pb.h"
#include "spec/jobfile/job_file.h"

namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr std::size_t kMostCallers = 1024;

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

int run(const std::vector<std::string>& arguments) {
  const auto file = jobfile::compose(jobfile::JobSource::of_file(arguments[2]), {}, jobfile::FileChecks::kLook);
  for (const auto& problem : file.problems) std::cerr << problem << '\n';
  if (!file.problems.empty()) return 2;
  const auto token = "Bearer " + first_line(arguments[1]);
  const std::size_t jobs = std::stoul(arguments[3]);
  const std::size_t callers = std::clamp<std::size_t>(std::stoul(arguments[4]), 1, kMostCallers);
  const auto stub =
      muster::v1::JobService::NewStub(grpc::CreateChannel(arguments[0], grpc::InsecureChannelCredentials()));

  std::atomic<std::size_t> next{0}, failed{0};
  std::mutex mutex;
  std::vector<double> answers;
  const auto begun = Clock::now();
  std::vector<std::jthread> threads;
  for (std::size_t caller = 0; caller < callers; ++caller) {
    threads.emplace_back([&] {
      for (std::size_t i = next++; i < jobs; i = next++) {
        muster::v1::SubmitRequest request;
        *request.mutable_spec() = file.spec;
        request.set_request_id("load-" + std::to_string(::getpid()) + "-" + std::to_string(i));
        request.set_user("bench");
        grpc::ClientContext context;
        context.AddMetadata("authorization", token);
        muster::v1::SubmitResponse response;
        const auto asked = Clock::now();
        const auto status = stub->Submit(&context, request, &response);
        const double took = Milliseconds(Clock::now() - asked).count();
        const std::scoped_lock lock(mutex);
        answers.push_back(took);
        if (!status.ok() && failed++ == 0) std::cerr << status.error_message() << '\n';
      }
    });
  }
  threads.clear();
  const double seconds = Milliseconds(Clock::now() - begun).count() / 1000;
  std::ranges::sort(answers);
  std::cout << "{\"jobs\": " << jobs << ", \"failed\": " << failed << ", \"seconds\": " << seconds
            << ", \"median_ms\": " << answers[answers.size() / 2] << ", \"slowest_ms\": " << answers.back() << "}\n";
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::cerr << "usage: submit_load ADDRESS TOKEN_FILE JOB_FILE JOBS CALLERS\n";
    return 2;
  }
  return run({argv + 1, argv + argc});
}
