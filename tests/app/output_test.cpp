#include "app/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <limits>

namespace gradloom {
namespace {

TEST(Output, TablesAreAligned) {
  EXPECT_EQ(table_text({"name", "time"}, {{"Gelu", "1.2 ms"}, {"µ", "10 us"}}),
            "name    time\n"
            "Gelu  1.2 ms\n"
            "µ      10 us");
  EXPECT_EQ(table_text({"a", "b"}, {{"x", "left"}}, {1}), "a  b\nx  left");
}

TEST(Output, NumbersThatJsonLacksBecomeText) {
  EXPECT_EQ(json_number(1.5), Json(1.5));
  EXPECT_EQ(json_number(std::nan("")), Json("NaN"));
  EXPECT_EQ(json_number(-std::numeric_limits<double>::infinity()), Json("-Infinity"));
}

TEST(Output, WhatACommandMissedToEscapeReachesNoTerminal) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const Output out;
  out.text("a\x1b[31m\tb\nc\xff");
  out.note("x\ny\x07");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "a\\x1b[31m\\x09b\nc\\xff\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "note: x\\x0ay\\x07\n");
}

// What a terminal of this kind gets of a progress bar.
std::string drawn(const char* kind) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) return "no terminals";
  const int end = open(ptsname(terminal), O_RDWR | O_NOCTTY), own = dup(STDERR_FILENO);
  dup2(end, STDERR_FILENO);
  setenv("TERM", kind, 1);
  Output().progress("w\x1b[2J", 0.5, "d\x07");
  dup2(own, STDERR_FILENO);
  const ssize_t last = write(end, "|", 1);
  std::string text;
  for (char c = 0; last == 1 && read(terminal, &c, 1) == 1 && c != '|';) text += c;
  for (const int fd : {terminal, end, own}) close(fd);
  return text;
}

TEST(Output, ProgressIsOneLineOfATerminalThatHasCodes) {
  const char* const was = std::getenv("TERM");
  const std::string before = was == nullptr ? "" : was, text = drawn("xterm"), dumb = drawn("dumb");
  was == nullptr ? unsetenv("TERM") : setenv("TERM", before.c_str(), 1);
  if (text == "no terminals") GTEST_SKIP() << text;
  EXPECT_EQ(text, "\r\033[K\033[?7lw\\x1b[2J [###############...............]  50 %  d\\x07\033[?7h");
  EXPECT_EQ(dumb, "");
}

}  // namespace
}  // namespace gradloom
