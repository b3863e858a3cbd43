// gradloom: the command line.
#include <execinfo.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstddef>
#include <cstdio>
#include <new>

#include "app/command.h"

namespace {

template <std::size_t kBytes>
[[gnu::noinline]] void touch() {
  [[maybe_unused]] volatile char stack[kBytes];
  stack[0] = 0;
}

// A stack grows when it is first used so far down, and where there is no address space left for that (ulimit -v) the program ends by a
// signal, without a word: so it grows now, to more than anything here uses. Only the page at its end is taken.
void grow_stack() {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  rlimit most{};  // ulimit -s: a smaller stack is the user's wish
  if (getrlimit(RLIMIT_STACK, &most) != 0 || most.rlim_cur < 4 * kBytes) return;
  touch<kBytes>();
}

}  // namespace

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);  // of a parent that ignores it: else nobody hears how a child of this one ended
  signal(SIGXFSZ, SIG_IGN);  // a file size limit then is an error of the write, like a full disk
  // The C library loads what it unwinds with when an exception first passes through it, and aborts where there is no
  // memory left for that: so now.
  void* frame = nullptr;
  backtrace(&frame, 1);
  grow_stack();
  try {
    return gradloom::run_command_line(argc, argv);
  } catch (const std::bad_alloc&) {  // before there is a command that says so
    std::fputs("gradloom: out of memory\n", stderr);
    return 4;
  }
}
