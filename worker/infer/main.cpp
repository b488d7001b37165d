// muster-infer: uses a model that was trained. It writes text, makes vectors, or sorts texts into classes.
#include <c10/util/Exception.h>
#include <signal.h>
#include <unistd.h>

#include <exception>
#include <iostream>
#include <new>
#include <stdexcept>

#include "base/usage_error.h"
#include "worker/infer/commands.h"
#include "worker/infer/infer_options.h"
#include "worker/infer/texts.h"
#include "worker/starter/library_path.h"

namespace {

constexpr int kDone = 0, kFailed = 1, kUsage = 2;

int fail(int code, const char* what) {
  std::cout << std::flush;
  std::cerr << "muster-infer: " << what << "\n";
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  starter::take_back_library_path();
  signal(SIGPIPE, SIG_DFL);  // if the reader of stdout ends, such as head, the program ends quietly
  try {
    const auto options = infer::parse_options(std::vector<std::string>(argv + 1, argv + argc));
    if (options.help) {
      std::cout << infer::help_text() << std::flush;
      return kDone;
    }
    const auto texts = infer::read_texts(options, std::cin, isatty(STDIN_FILENO) == 0);
    infer::run(options, texts, {.out = std::cout, .notes = std::cerr, .out_is_terminal = isatty(STDOUT_FILENO) == 1});
    return kDone;
  } catch (const base::UsageError& error) {
    return fail(kUsage, error.what());
  } catch (const std::invalid_argument& error) {
    return fail(kUsage, error.what());
  } catch (const std::bad_alloc&) {
    return fail(kFailed, "out of memory; try --dtype bf16 or a smaller --batch");
  } catch (const c10::Error& error) {
    return fail(kFailed, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return fail(kFailed, error.what());
  }
}
