#include "worker/train/step_trace_requests.h"

#include <algorithm>
#include <cstdio>

namespace worker {
namespace {

std::string text_of(std::int64_t number) {
  return std::to_string(number);
}

std::string steps_text(std::int64_t count) {
  return text_of(count) + (count == 1 ? " step" : " steps");
}

}  // namespace

agent::rank::TraceWish TraceRequests::wish() const {
  if (now_) return {};
  const auto wish = reporter_.trace_requested();
  return wish && !is_known(wish->number) ? *wish : agent::rank::TraceWish{};
}

void TraceRequests::agreed(std::int64_t step, const agent::rank::TraceWish& wish) {
  if (wish.number == 0 || now_) return;
  known_.push_back(wish.number);
  if (known_.size() > kRemembered) known_.pop_front();
  const std::int64_t next = step + 1;
  now_ =
      agent::rank::TraceReport{.number = wish.number, .first = wish.first > 0 ? wish.first : next, .steps = wish.steps};
  if (now_->first > last_step_) {
    now_->problem = "the training ends after step " + text_of(last_step_);
    now_->over = true;
  } else if (now_->first < next) {
    now_->problem = "step " + text_of(now_->first) + " had begun when the ranks heard of the request, in step " +
                    text_of(step) + "; ask for a later step, or for none";
    now_->over = true;
  }
  tell();
}

bool TraceRequests::records(std::int64_t step) const {
  return now_ && step >= now_->first && step - now_->first < now_->steps;
}

void TraceRequests::wrote(std::int64_t step, const WrittenTrace& written) {
  if (!records(step)) return;
  if (written.problem.empty()) {
    now_->steps_written.push_back(step);
  } else if (now_->problem.empty()) {
    now_->problem = "no trace in " + written.file.native() + ": " + written.problem;
  }
  const std::int64_t left = now_->first + now_->steps - 1 - step;
  now_->over = left == 0 || step == last_step_;
  if (left > 0 && now_->over && now_->problem.empty()) {
    now_->problem = "the training ended with step " + text_of(step) + ", " + steps_text(left) + " too early";
  }
  tell();
}

bool TraceRequests::is_known(std::uint64_t number) const {
  return std::ranges::find(known_, number) != known_.end();
}

void TraceRequests::tell() {
  reporter_.trace(*now_);
  if (!now_->over) return;
  const auto& done = *now_;
  std::printf("[rank %d] recorded %zu of %s, from step %lld on, as asked%s%s\n", rank_, done.steps_written.size(),
              steps_text(done.steps).c_str(), static_cast<long long>(done.first), done.problem.empty() ? "" : ": ",
              done.problem.c_str());
  std::fflush(stdout);
  now_.reset();
}

}  // namespace worker
