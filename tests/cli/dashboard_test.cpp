// Goal: one command leads from a shell into the dashboard, and a wrong port gets a message that says so.
// Method: the pure function; the real program with a fake controller, and with a port that speaks HTTP.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "cli/cli_command.h"
#include "tests/cli/fake_controller.h"
#include "tests/held_lock.h"

namespace test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DashboardLink, OnThisMachineItIsTheLinkAlone) {
  const auto link = cli::dashboard_link({"http://127.0.0.1:7601/", "abc", "127.0.0.1:7600", "", "ada"});
  EXPECT_EQ(link.link, "http://127.0.0.1:7601/#token=abc");
  EXPECT_EQ(link.tunnel, "");
}

TEST(DashboardLink, OverSshItNamesTheTunnelToTypeOnOnesOwnMachine) {
  const cli::DashboardFacts facts{"http://127.0.0.1:7601/", "abc", "127.0.0.1:7600", "10.1.1.9 51000 10.0.0.5 22",
                                  "ada"};
  EXPECT_EQ(cli::dashboard_link(facts).link, "http://127.0.0.1:7601/#token=abc");
  EXPECT_EQ(cli::dashboard_link(facts).tunnel, "ssh -N -L 7601:127.0.0.1:7601 ada@10.0.0.5");
  auto other_port = facts;
  other_port.ssh_connection = "10.1.1.9 51000 10.0.0.5 2222";
  EXPECT_EQ(cli::dashboard_link(other_port).tunnel, "ssh -N -L 7601:127.0.0.1:7601 -p 2222 ada@10.0.0.5");
}

TEST(DashboardLink, OfAControllerElsewhereTheTunnelLeadsThere) {
  const auto alone = cli::dashboard_link({"http://127.0.0.1:7601/", "abc", "login7:7600", "", "ada"});
  EXPECT_EQ(alone.tunnel, "ssh -N -L 7601:127.0.0.1:7601 ada@login7");
  EXPECT_EQ(alone.listens_on, "login7");
  const auto open = cli::dashboard_link({"http://0.0.0.0:7601/", "abc", "login7:7600", "a 1 b 22", "ada"});
  EXPECT_EQ(open.link, "http://login7:7601/#token=abc");
  EXPECT_EQ(open.tunnel, "");
}

TEST(DashboardLink, OfAControllerInSlurmTheTunnelLeadsThroughTheLoginNode) {
  cli::DashboardFacts facts{"http://0.0.0.0:7601/", "abc", "node7:7600", "a 1 login 22", "ada", true};
  EXPECT_EQ(cli::dashboard_link(facts).link, "http://127.0.0.1:7601/#token=abc");
  EXPECT_EQ(cli::dashboard_link(facts).tunnel, "ssh -N -L 7601:node7:7601 ada@login");
  facts.ssh_connection.clear();
  EXPECT_EQ(cli::dashboard_link(facts).link, "http://node7:7601/#token=abc") << "a desktop of the cluster";
  EXPECT_EQ(cli::dashboard_link(facts).tunnel, "");
}

TEST(Dashboard, PrintsTheLinkAloneAndTheTunnelBesideIt) {
  FakeController fake;
  fake.with([](FakeState& s) { s.dashboard_url = "http://127.0.0.1:41233/"; });
  const auto link = std::string("http://127.0.0.1:41233/#token=") + FakeController::kToken;
  const auto here = fake.muster({"dashboard"}, {{"SSH_CONNECTION", ""}});
  EXPECT_EQ(here.exit, 0) << here.err;
  EXPECT_EQ(here.out, link + "\n");
  EXPECT_EQ(here.err, "");
  const std::map<std::string, std::string> over_ssh{{"SSH_CONNECTION", "10.1.1.9 51000 10.0.0.5 22"}};
  const auto there = fake.muster({"dashboard"}, over_ssh);
  EXPECT_EQ(there.out, link + "\n");
  EXPECT_THAT(there.err,
              AllOf(HasSubstr("first run this on your own machine"), HasSubstr("  ssh -N -L 41233:127.0.0.1:41233 ")));
  const auto json = nlohmann::json::parse(fake.muster({"dashboard", "--json"}, over_ssh).out);
  EXPECT_EQ(json.at("link"), link);
  EXPECT_THAT(std::string(json.at("tunnel")), HasSubstr("@10.0.0.5"));
}

TEST(Dashboard, OpensABrowserWithoutTheTokenOnAnyCommandLine) {
  FakeController fake;
  fake.with([](FakeState& s) { s.dashboard_url = "http://127.0.0.1:41233/"; });
  const auto tools = fake.folder().path() / "tools";
  std::filesystem::create_directories(tools);
  write_file(tools / "xdg-open", "#!/bin/sh\necho \"$@\" > " + (fake.folder().path() / "opened").native() + "\n");
  std::filesystem::permissions(tools / "xdg-open", std::filesystem::perms::owner_all);
  std::map<std::string, std::string> desktop{{"SSH_CONNECTION", ""},
                                             {"DISPLAY", ":0"},
                                             {"XDG_RUNTIME_DIR", fake.folder().path()},
                                             {"PATH", tools.native() + ":/usr/bin:/bin"}};
  const auto done = fake.muster({"dashboard", "--open"}, desktop);
  EXPECT_EQ(done.exit, 0) << done.err;
  const auto page = fake.folder().path() / "muster-dashboard.html";
  EXPECT_EQ(read_file(fake.folder().path() / "opened"), page.native() + "\n");
  EXPECT_THAT(read_file(page), HasSubstr(std::string("url=http://127.0.0.1:41233/#token=") + FakeController::kToken));
  EXPECT_EQ(std::filesystem::status(page).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  desktop["DISPLAY"] = "";
  desktop["WAYLAND_DISPLAY"] = "";
  const auto headless = fake.muster({"dashboard", "--open"}, desktop);
  EXPECT_EQ(headless.exit, 2);
  EXPECT_THAT(headless.out, HasSubstr("#token=")) << "the link is there all the same";
  EXPECT_THAT(headless.err, HasSubstr("--open needs a desktop"));
}

/// A port with an HTTP server that refuses every request.
class HttpPort {
 public:
  HttpPort() : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof place;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&place), size), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&place), &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(place.sin_port));
    thread_ = std::thread([this] {
      for (int fd = accept(listener_, nullptr, nullptr); fd >= 0; fd = accept(listener_, nullptr, nullptr)) {
        char request[4096];
        const std::string answer = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        if (recv(fd, request, sizeof request, 0) > 0) send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
        close(fd);
      }
    });
  }
  ~HttpPort() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  const std::string& address() const { return address_; }

 private:
  int listener_;
  std::string address_;
  std::thread thread_;
};

TEST(Usage, TheDashboardsPortIsCalledSoAndNotWaitedFor) {
  FakeController fake;
  HttpPort dashboard;
  const auto data = fake.folder().path() / "data";
  std::filesystem::create_directories(data);
  const auto list = fake.muster({"list", "--address", dashboard.address()});
  EXPECT_EQ(list.exit, 4);
  EXPECT_THAT(list.err,
              HasSubstr(dashboard.address() + " (--address) is the port of a dashboard, which speaks HTTP; "
                                              "muster speaks gRPC: use the address that musterd --listen names"));
  write_file(data / "musterd.json",
             R"({"pid":1,"grpc":")" + fake.address() + R"(","http":")" + dashboard.address() + R"("})");
  const auto known = fake.muster({"list", "--address", dashboard.address()}, {{"MUSTER_DATA_FOLDER", data}});
  EXPECT_THAT(known.err, HasSubstr("use --address " + fake.address() + "\n"));
  write_file(fake.folder().path() / "job.toml", "name = \"a\"\ncommand = [\"true\"]\n");
  const auto submit = fake.muster({"submit", "--address", dashboard.address(), fake.folder().path() / "job.toml"});
  EXPECT_EQ(submit.exit, 4);
  EXPECT_LT(submit.took, 15s) << "waiting does not make it the right port";
}

TEST(Usage, AControllerIsFoundByItsDataFolder) {
  FakeController fake;
  const auto data = fake.folder().path() / "data";
  std::filesystem::create_directories(data);
  write_file(data / "musterd.json",
             R"({"pid":)" + std::to_string(getpid()) + R"(,"grpc":")" + fake.address() + R"("})");
  write_file(data / "token", std::string(FakeController::kToken) + "\n");
  const auto lock = hold_lock(data);
  const std::map<std::string, std::string> folder{
      {"MUSTER_DATA_FOLDER", data}, {"MUSTER_ADDRESS", ""}, {"MUSTER_TOKEN_FILE", ""}};
  EXPECT_EQ(fake.muster({"list"}, folder).exit, 0);
  fake.stop();
  EXPECT_THAT(fake.muster({"list"}, folder).err, HasSubstr("controller unreachable at " + fake.address() + " (" +
                                                           data.native() + "/musterd.json): start"));
}

TEST(Usage, OtherProgramsWordsLeadToOurs) {
  FakeController fake;
  for (const auto& [word, own] : std::vector<std::pair<std::string, std::string>>{
           {"ls", "list"}, {"ps", "list"}, {"get", "show"}, {"sbatch", "submit"}, {"shwo", "show"}}) {
    const auto refused = fake.muster({word});
    EXPECT_EQ(refused.exit, 2);
    EXPECT_EQ(refused.err,
              "muster: there is no command \"" + word + "\", did you mean muster " + own + "; see muster --help\n");
  }
}

TEST(Help, ExplainsTheProgramACommandAndOneBelowIt) {
  FakeController fake;
  EXPECT_EQ(fake.muster({"help"}).out, fake.muster({"--help"}).out);
  EXPECT_EQ(fake.muster({"help", "cancel"}).out, fake.muster({"cancel", "--help"}).out);
  EXPECT_EQ(fake.muster({"help", "admin", "partition"}).out, fake.muster({"admin", "partition", "--help"}).out);
  EXPECT_THAT(fake.muster({"help", "cancel"}).out, HasSubstr("muster cancel"));
  const auto refused = fake.muster({"help", "cancle"});
  EXPECT_EQ(refused.exit, 2);
  EXPECT_EQ(refused.err, "muster help: there is no command \"cancle\", did you mean muster cancel\n");
}

/// Doctor's finding about Slurm ("note ..." or "ok ..."), with these programs first in PATH.
std::string slurm_finding(FakeController& fake, const std::string& sinfo) {
  const auto tools = fake.folder().path() / "slurm-tools";
  std::filesystem::create_directories(tools);
  for (const auto& [name, text] : {std::pair<std::string, std::string>{"sbatch", "true"}, {"sinfo", sinfo}}) {
    write_file(tools / name, "#!/bin/sh\n" + text + "\n");
    std::filesystem::permissions(tools / name, std::filesystem::perms::owner_all);
  }
  for (const auto& row :
       nlohmann::json::parse(fake.muster({"doctor", "--json"}, {{"PATH", tools.native() + ":/usr/bin:/bin"}}).out)) {
    if (row.at("check") == "slurm") return std::string(row.at("verdict")) + " " + std::string(row.at("text"));
  }
  return "";
}

TEST(Doctor, SlurmIsFineOnlyWhereItAnswers) {
  FakeController fake;
  EXPECT_THAT(slurm_finding(fake, "echo main; echo low"), HasSubstr("sbatch, partitions main, low"));
  const auto unconfigured =
      slurm_finding(fake, "echo 'sinfo: error: resolve_ctls_from_dns_srv: res_nsearch error' >&2; exit 1");
  EXPECT_THAT(unconfigured, AllOf(HasSubstr("note "), HasSubstr("Slurm does not answer (sinfo: error: resolve_ctls")));
  EXPECT_THAT(slurm_finding(fake, "sleep 60"), AllOf(HasSubstr("note "), HasSubstr("sinfo has not answered in 5s")));
}

}  // namespace
}  // namespace test
