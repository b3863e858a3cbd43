// gradloom: the command line.
#include <signal.h>

#include "app/command.h"

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a file size limit then is an error of the write, like a full disk
  return gradloom::run_command_line(argc, argv);
}
