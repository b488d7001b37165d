#include "fsdp/comm/node/meeting.h"

#include <c10/util/Exception.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "fsdp/tracing/error_text.h"

namespace fsdp::node {
namespace {

/// The ranks of a group at their store.
class Meeting {
 public:
  Meeting(c10::intrusive_ptr<c10d::Store> store, const TransportOptions& options)
      : store_(std::move(store)), options_(options) {}

  void write(const std::string& key, const std::string& value) {
    store_->set(key, std::vector<std::uint8_t>(value.begin(), value.end()));
  }

  std::string read(const std::string& key) {
    try {
      store_->wait({key}, options_.timeout);
      const std::vector<std::uint8_t> value = store_->get(key);
      return {value.begin(), value.end()};
    } catch (const std::exception& error) {
      TORCH_CHECK(false, "shared memory on rank ", options_.rank, " of ", options_.world_size, ": no \"", key,
                  "\" in the rendezvous store (did a rank die?): ", text_of(error));
    }
  }

  /// Whether all ranks say yes. The last one writes the answer, so a rank reads one key and not one a rank.
  bool all_agree(const std::string& question, bool yes) {
    store_->add("noes to " + question, yes ? 0 : 1);
    if (store_->add("answers to " + question, 1) == options_.world_size)
      write(question, store_->add("noes to " + question, 0) == 0 ? "yes" : "no");
    return read(question) == "yes";
  }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  const TransportOptions& options_;
};

std::string card_of(int rank) {
  return "card of rank " + std::to_string(rank);
}

}  // namespace

std::unique_ptr<Node> meet(const c10::intrusive_ptr<c10d::Store>& store, const TransportOptions& options) {
  Meeting meeting(store, options);
  std::unique_ptr<Node> node;
  std::string host = "none";
  try {
    node = std::make_unique<Node>(options.rank, options.world_size, options.timeout);
    const Card card = node->card();
    host = card.host;
    meeting.write(card_of(options.rank), card.text());
  } catch (const c10::Error&) {
    node = nullptr;  // this system does not allow it
  }
  if (options.rank == 0) meeting.write("host of rank 0", host);
  const bool is_here = node != nullptr && meeting.read("host of rank 0") == host;
  if (!meeting.all_agree("all on one host", is_here)) return nullptr;

  std::vector<Card> cards;
  for (int rank = 0; rank < options.world_size; ++rank) cards.push_back(Card::parse(meeting.read(card_of(rank))));
  bool reached = true;
  try {
    node->meet(cards);
  } catch (const c10::Error&) {
    reached = false;  // such as a container that hides processes
  }
  return meeting.all_agree("all reached", reached) ? std::move(node) : nullptr;
}

}  // namespace fsdp::node
