// gradloom: the command line.
#include <signal.h>

#include "app/command.h"

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  return gradloom::run_command_line(argc, argv);
}
