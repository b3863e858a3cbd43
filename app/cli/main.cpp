// gradloom: the command line.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "app/command.h"

namespace {

// Threads that wait for work spin only briefly: on a shared machine long spinning costs whole scheduler
// quanta per kernel, on a quiet one it gains nothing (gpt-char step, 2 threads: 8.1 ms with 2000 spins, 8.4
// ms with libgomp's default, 14.9 ms without any). Stacks that are too small for a thread end the process in
// libgomp's words. libgomp reads its settings before main, so the program starts itself once more with the
// settings made.
void settle_openmp(char** argv) {
  bool changed = false;
  for (const char* name : {"OMP_STACKSIZE", "GOMP_STACKSIZE"})
    changed |= getenv(name) != nullptr && unsetenv(name) == 0;
  if (getenv("OMP_WAIT_POLICY") == nullptr && getenv("GOMP_SPINCOUNT") == nullptr)
    changed |= setenv("GOMP_SPINCOUNT", "2000", 1) == 0;
  if (changed) execv("/proc/self/exe", argv);  // comes back only on failure: then libgomp's defaults are used
}

}  // namespace

int main(int argc, char** argv) {
  settle_openmp(argv);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a file size limit then is an error of the write, like a full disk
  return gradloom::run_command_line(argc, argv);
}
