#include "fsdp/comm/watch/watcher.h"

#include <c10/util/Exception.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <random>
#include <sstream>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "fsdp/tracing/error_text.h"

namespace fsdp::watch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShortestTick{5}, kLongestTick{250};
constexpr int kMostGaps = 16;  // the longest time between two questions, in patiences
constexpr milliseconds kGoodbyePatience{500};
constexpr milliseconds kFirstWaitLook{1}, kWaitLook{64};  // how long a wait at the store sleeps until it looks again
constexpr const char* kMeeting = "meeting of the ranks: ";
constexpr const char* kGivenUp = "given up";  // the key of why rank 0 has left before all had come

std::string call_named(const Calls& calls, const std::string& group, std::uint64_t number) {
  for (const Call& call : calls.last())
    if (call.number == number) return "call " + std::to_string(number) + " of " + group + ", " + call.text();
  return "call " + std::to_string(number) + " of " + group;
}

}  // namespace

std::string Watcher::who_am_i() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return "process " + std::to_string(::getpid()) + " on " + host.data();
}

Watcher::Watcher(c10d::Store& store, int rank, int world_size, WatchOptions options)
    : rank_(rank),
      world_size_(world_size),
      options_(std::move(options)),
      tick_(std::clamp(options_.patience / 4, kShortestTick, kLongestTick)),
      now_(Clock::now()),
      began_(now_),
      next_roll_(now_ + options_.late_after) {
  TORCH_CHECK(world_size > 1, "watcher: a world of one rank has nobody to wait for");
  wake_fd_ = base::Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  TORCH_CHECK(wake_fd_, "watcher: eventfd: ", std::strerror(errno));
  try {
    meet(store);
  } catch (const std::exception& error) {
    const std::string why = text_of(error);
    TORCH_CHECK(!why.starts_with(kMeeting), why);
    TORCH_CHECK(false, kMeeting, "rank ", rank, " has no connection to rank 0: ", why);
  }
  thread_ = std::thread([this] { run(); });
  if (rank > 0) return;
  try {
    await_all();
  } catch (const c10::Error& error) {
    store.set(kGivenUp, text_of(error));  // for those that come too late
    throw;
  }
}

/// So that nobody finds rank 0's socket closed again. The others need not wait for one another.
void Watcher::await_all() {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto is_over = [this] { return static_cast<int>(here_.size()) == world_size_ - 1 || !absent_.empty(); };
  if (changed_.wait_for(lock, options_.timeout, is_over) && absent_.empty()) return;
  std::string why = absent_;
  if (why.empty())
    why = names_of(missing()) + " did not come within " + std::to_string(options_.timeout.count()) + " ms";
  ends_ = true;
  lock.unlock();
  wake();
  thread_.join();
  TORCH_CHECK(false, kMeeting, why);
}

/// The ranks that have not come to rank 0. The caller holds the mutex.
std::vector<int> Watcher::missing() const {
  std::vector<int> ranks;
  for (int rank = 1; rank < world_size_; ++rank)
    if (!here_.contains(rank)) ranks.push_back(rank);
  return ranks;
}

/// On rank 0, until all have come: names the others in the logs of those that have.
void Watcher::call_the_roll() {
  if (!hub_ || now_ < next_roll_) return;
  std::vector<int> late;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    late = missing();
  }
  if (late.empty()) return;
  const auto waited = std::chrono::duration_cast<std::chrono::seconds>(now_ - began_);
  next_roll_ = now_ + 2 * (now_ - began_);
  const std::string text = names_of(late) + (late.size() == 1 ? " has" : " have") + " not come for " +
                           std::to_string(waited.count()) + " s to where the ranks meet, at rank 0, " + who_am_i();
  say(text);
  for (Guest& guest : guests_)
    if (guest.rank >= 0) guest.line.put(Json(Json::Object{{"roll", text}}).dump());
}

void Watcher::note_gone(int rank, Gone gone) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (absent_.empty()) absent_ = "rank " + std::to_string(rank) + " is gone: " + gone.why;
  }
  changed_.notify_all();
  gone_.try_emplace(rank, std::move(gone));
}

void Watcher::check_all_here(milliseconds patience) const {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, patience, [this] { return !absent_.empty(); });
  TORCH_CHECK(absent_.empty(), kMeeting, absent_);
}

/// Rank 0 listens, and the others connect. They know its secret from the store.
void Watcher::meet(c10d::Store& store) {
  const std::string key = "watcher";
  if (rank_ == 0) {
    const std::string address = net::address_of(options_.interface_address);
    std::random_device random;
    secret_ = std::to_string(std::uint64_t{random()} << 32 | random());
    listening_ = net::listen_at(address);
    const std::string port = net::port_of(listening_.get(), "connections of ranks: no port of the own socket: ");
    store.set(key, secret_ + " " + port + " " + address + " " + who_am_i());
    hub_.emplace(2 * options_.patience, [this](int rank, const Json& message) { tell_rank(rank, message); });
    hub_->came(0);
    return;
  }
  std::string written;
  {
    const LateWord word(
        options_.late_after, [this](const std::string& text) { say(text); }, "rank 0",
        "it has not opened the place where the ranks meet");
    written = store.get_to_str(key);
  }
  std::istringstream card(written);
  std::string port, host;
  card >> secret_ >> port >> host;
  std::getline(card >> std::ws, who_hub_);
  base::Fd socket;
  try {
    socket = net::connect_to(host, port, options_.timeout);
  } catch (const c10::Error&) {
    if (!store.check({kGivenUp})) throw;
    TORCH_CHECK(false, store.get_to_str(kGivenUp));
  }
  net::set_options(socket.get());
  to_hub_.emplace(std::move(socket));
  to_hub_->put(Json(Json::Object{{"secret", secret_}, {"rank", rank_}, {"who", who_am_i()}}).dump());
}

Watcher::~Watcher() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  wake();
  thread_.join();
}

void Watcher::watch(std::shared_ptr<Calls> calls, Watched watched) {
  const std::lock_guard<std::mutex> lock(entries_mutex_);
  Entry entry;
  entry.calls = std::move(calls);
  entry.watched = std::move(watched);
  entry.since = entry.next_question = entry.next_word = Clock::now();
  entries_.push_back(std::move(entry));
}

void Watcher::forget(const Calls& calls) {
  const std::lock_guard<std::mutex> lock(entries_mutex_);
  const auto is_it = [&](const Entry& entry) { return entry.calls.get() == &calls; };
  for (const Entry& entry : entries_)
    if (is_it(entry)) forgotten_[entry.watched.group] = calls.made();
  entries_.remove_if(is_it);
}

std::string Watcher::verdict() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return verdict_;
}

std::string Watcher::explain(const Calls& calls) {
  std::unique_lock<std::mutex> lock(mutex_);
  ++failing_[&calls];
  wake();
  changed_.wait_for(lock, 2 * options_.patience, [this] { return !verdict_.empty() || ends_; });
  if (--failing_[&calls] == 0) failing_.erase(&calls);
  if (!verdict_.empty()) return verdict_;
  const auto late = late_.find(&calls);
  return late == late_.end() ? "" : late->second;
}

void Watcher::wake() {
  const std::uint64_t one = 1;
  (void)!::write(wake_fd_.get(), &one, sizeof one);
}

void Watcher::run() {
  const auto ends = [this] {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ends_;
  };
  while (!ends()) {
    sleep();
    now_ = Clock::now();
    hear();
    deliver();
    look();
    deliver();
    call_the_roll();
  }
  say_goodbye();
}

/// Until a message or a wake comes, or it is time to look.
void Watcher::sleep() {
  std::vector<pollfd> sockets{{wake_fd_.get(), POLLIN, 0}};
  const auto add = [&](const Line& line) {
    sockets.push_back({line.fd(), static_cast<short>(POLLIN | (line.wants_to_write() ? POLLOUT : 0)), 0});
  };
  if (to_hub_) add(*to_hub_);
  if (hub_) sockets.push_back({listening_.get(), POLLIN, 0});
  for (const Guest& guest : guests_) add(guest.line);
  (void)::poll(sockets.data(), sockets.size(),
               static_cast<int>(std::chrono::duration_cast<milliseconds>(tick_).count()));
  std::uint64_t count = 0;
  (void)!::read(wake_fd_.get(), &count, sizeof count);
}

void Watcher::hear() {
  if (to_hub_) hear_hub();
  if (!hub_) return;
  pollfd one{listening_.get(), POLLIN, 0};
  while (::poll(&one, 1, 0) == 1) {
    base::Fd socket(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) break;
    net::set_options(socket.get());
    guests_.push_back({Line(std::move(socket)), -1, ""});
  }
  hear_guests();
}

void Watcher::hear_hub() {
  to_hub_->flush();
  for (const std::string& line : to_hub_->take()) heard(Json::parse(line));
  if (!to_hub_->is_gone()) return;
  to_hub_.reset();
  note_gone(0, Gone{who_hub_ + " has ended", std::nullopt});
}

void Watcher::hear_guests() {
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    guest->line.flush();
    bool is_sane = true;
    for (const std::string& text : guest->line.take()) {
      try {
        if (is_sane) hear_guest(*guest, text);
      } catch (const JsonError&) {
        is_sane = false;  // a stranger
      }
    }
    if (is_sane && !guest->line.is_gone()) {
      ++guest;
      continue;
    }
    const Guest ended = std::move(*guest);
    guest = guests_.erase(guest);
    if (ended.rank >= 0) hub_->gone(ended.rank, ended.who + " has ended");
  }
}

void Watcher::hear_guest(Guest& guest, const std::string& text) {
  const Json message = Json::parse(text);
  if (guest.rank >= 0) return hub_->heard(guest.rank, message, now_);
  if (message.at("secret").as_string() != secret_) throw JsonError("another secret");
  guest.rank = static_cast<int>(message.at("rank").as_int());
  guest.who = message.at("who").as_string();
  hub_->came(guest.rank);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    here_.insert(guest.rank);
  }
  changed_.notify_all();
}

/// Delivers the messages that rank 0 and its own hub have for each other.
void Watcher::deliver() {
  if (!hub_) return;
  do {
    for (const Json& message : std::exchange(from_here_, {})) hub_->heard(0, message, now_);
    for (const Json& message : std::exchange(to_here_, {})) heard(message);
    if (from_here_.empty()) hub_->look(now_);
  } while (!from_here_.empty() || !to_here_.empty());
}

void Watcher::tell_hub(const Json& message) {
  if (hub_) {
    from_here_.push_back(message);
  } else if (to_hub_) {
    to_hub_->put(message.dump());
  }
}

void Watcher::tell_rank(int rank, const Json& message) {
  if (rank == 0) {
    to_here_.push_back(message);
    return;
  }
  for (Guest& guest : guests_)
    if (guest.rank == rank) guest.line.put(message.dump());
}

void Watcher::heard(const Json& message) {
  if (const Json* group = message.find("query")) {
    tell_hub(answer(group->as_string()));
  } else if (const Json* verdict = message.find("verdict")) {
    fail(verdict->as_string());
  } else if (const Json* late = message.find("late")) {
    const std::scoped_lock lock(entries_mutex_, mutex_);
    for (Entry& entry : entries_)
      if (entry.watched.group == message.at("group").as_string())
        entry.late = late_[entry.calls.get()] = late->as_string();
  } else if (const Json* roll = message.find("roll")) {
    say(roll->as_string());
  } else if (const Json* rank = message.find("gone")) {
    Gone gone{message.at("why").as_string(), std::nullopt};
    if (const Json* made = message.find("made")) {
      gone.made.emplace();
      for (const auto& [name, count] : made->as_object())
        gone.made->emplace(name, static_cast<std::uint64_t>(count.as_int()));
    }
    note_gone(static_cast<int>(rank->as_int()), std::move(gone));
  }
}

Json Watcher::answer(const std::string& group) {
  Answer answer;
  answer.belongs = false;
  const std::lock_guard<std::mutex> lock(entries_mutex_);
  for (const Entry& entry : entries_) {
    const Calls::Place place = entry.calls->place();
    if (entry.watched.group != group) {
      if (place.inside() && entry.watched.host_waits)
        answer.elsewhere = call_named(*entry.calls, entry.watched.group, place.number);
      continue;
    }
    answer.belongs = true;
    answer.calls = entry.calls->last();
    answer.unchanged = std::chrono::duration_cast<milliseconds>(now_ - entry.since);
    if (!entry.watched.host_waits && answer.made() > 0) answer.waits_in = answer.made() - 1;
    if (entry.watched.host_waits && place.inside()) answer.waits_in = place.number;
  }
  Json message = answer.json();
  message["answer"] = group;
  return message;
}

void Watcher::look() {
  std::string verdict;
  {
    const std::lock_guard<std::mutex> lock(entries_mutex_);
    for (Entry& entry : entries_) {
      bool failing = false;
      {
        const std::lock_guard<std::mutex> also(mutex_);
        failing = failing_.contains(entry.calls.get());
      }
      const std::string found = look_at(entry, failing);
      if (verdict.empty()) verdict = found;
    }
  }
  if (!verdict.empty()) decide(verdict);
}

/// Returns a verdict, if this rank alone can tell one. `failing`: a collective has thrown, and its thread wants to know
/// why.
std::string Watcher::look_at(Entry& entry, bool failing) {
  const Calls::Place place = entry.calls->place();
  const std::uint64_t made = entry.calls->made();
  const std::uint64_t seen = entry.watched.host_waits ? place.stay : made;
  if (entry.seen != seen) {
    entry.seen = seen;
    entry.since = now_;
    entry.gap = options_.patience;
    entry.next_question = now_ + options_.patience;
    entry.next_word = now_ + options_.late_after;
    entry.late.clear();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failing) late_.erase(entry.calls.get());
  }
  const bool waits = entry.watched.host_waits ? place.inside() : made > 0;
  const bool is_stuck = waits && now_ - entry.since >= options_.patience;
  if (has_failed() || !(failing || is_stuck)) return {};
  if (const std::string absent = absent_in(entry); !absent.empty()) return absent;
  if (failing || now_ >= entry.next_question) {
    entry.next_question = now_ + entry.gap;
    entry.gap = std::min(2 * entry.gap, kMostGaps * options_.patience);
    tell_hub(Json::Object{{"ask", entry.watched.group},
                          {"ranks", Json::Array(entry.watched.ranks.begin(), entry.watched.ranks.end())}});
  }
  if (now_ >= entry.next_word && !entry.late.empty()) {
    entry.next_word = now_ + 2 * (now_ - entry.since);
    say(entry.late);
  }
  return {};
}

/// The ranks that are gone and cannot come to the call that this rank waits in.
std::string Watcher::absent_in(const Entry& entry) const {
  const std::uint64_t made = entry.calls->made();
  const std::uint64_t number =
      entry.watched.host_waits ? entry.calls->place().number : made - std::min<std::uint64_t>(made, 1);
  std::string text;
  for (const int rank : entry.watched.ranks) {
    const auto gone = gone_.find(rank);
    if (gone == gone_.end()) continue;
    if (const auto& theirs = gone->second.made) {
      const auto count = theirs->find(entry.watched.group);
      if (count != theirs->end() && count->second > number) continue;
    }
    text += (text.empty() ? "rank " : "; rank ") + std::to_string(rank) + " is gone: " + gone->second.why;
  }
  return text.empty() ? "" : text + "; it is missing in " + call_named(*entry.calls, entry.watched.group, number);
}

void Watcher::say(const std::string& text) const {
  if (options_.on_late) return options_.on_late(text);
  std::fprintf(stderr, "[rank %d] %s\n", rank_, text.c_str());
}

/// The hub makes sure that all ranks get the same verdict. Without it each rank has its own.
void Watcher::decide(const std::string& verdict) {
  if (!hub_ && !to_hub_) return fail(verdict);
  tell_hub(Json::Object{{"verdict", verdict}});
}

void Watcher::fail(const std::string& verdict) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!verdict_.empty()) return;
    verdict_ = verdict;
    failed_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
  const std::lock_guard<std::mutex> lock(entries_mutex_);
  for (const Entry& entry : entries_)
    if (entry.watched.abort) entry.watched.abort(verdict);
}

void Watcher::say_goodbye() {
  Json::Object made;
  {
    const std::lock_guard<std::mutex> lock(entries_mutex_);
    for (const auto& [group, calls] : forgotten_) made[group] = calls;
    for (const Entry& entry : entries_) made[entry.watched.group] = entry.calls->made();
  }
  tell_hub(Json::Object{{"bye", std::move(made)}});
  deliver();
  const auto deadline = Clock::now() + kGoodbyePatience;
  const auto left = [&] { return std::chrono::duration_cast<milliseconds>(deadline - Clock::now()); };
  if (to_hub_) to_hub_->close(left());
  for (Guest& guest : guests_) guest.line.close(left());
}

void MeetingStore::wait(const std::vector<std::string>& keys, const milliseconds& timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const auto is_there = [&] {
    try {
      return PrefixStore::check(keys);
    } catch (const std::exception&) {
      check_all_here();
      throw;
    }
  };
  for (auto pause = kFirstWaitLook; !is_there(); pause = std::min(2 * pause, kWaitLook)) {
    check_all_here();
    const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
    TORCH_CHECK(left.count() > 0, "rendezvous store: no \"", keys.empty() ? "" : keys.front(), "\" within ",
                timeout.count(), " ms");
    std::this_thread::sleep_for(std::min(pause, left));
  }
}

}  // namespace fsdp::watch
