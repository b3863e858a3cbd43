#include "profiler/trace_files.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "profiler/chrome_trace.h"
#include "profiler/perfetto_trace.h"
#include "tests/folder.h"
#include "tests/profiler/trace_documents.h"

namespace gradloom {
namespace {

class TraceFiles : public ::testing::Test {
 protected:
  std::string read(const std::string& path) {
    gzFile file = gzopen(path.c_str(), "rb");  // reads plain files too
    std::string out(1 << 20, '\0');
    out.resize(static_cast<std::size_t>(gzread(file, out.data(), 1 << 20)));
    gzclose(file);
    return out;
  }
  TemporaryFolder folder_;
};

TEST_F(TraceFiles, TheNameChoosesTheFormat) {
  const TraceDocument d = document();
  std::string packets;
  ASSERT_TRUE(write_perfetto_trace(d, [&](std::string_view piece) -> Status {
                packets += piece;
                return {};
              }).ok());
  const std::map<std::string, std::string> files{{"t.json", chrome_trace_json(d)},
                                                 {"t.csv", trace_csv(d)},
                                                 {"t.pftrace", packets},
                                                 {"t.perfetto-trace", packets},
                                                 {"plain", chrome_trace_json(d)}};
  for (const auto& [name, text] : files)
    for (const char* end : {"", ".gz"}) {
      const std::string path = folder_ / (name + end);
      ASSERT_TRUE(write_trace(d, trace_format_of(path), path).ok()) << path;
      EXPECT_EQ(read(path), text) << path;
      std::ifstream raw(path, std::ios::binary);
      EXPECT_EQ(raw.get() == 0x1f, *end != 0) << path;
    }
  EXPECT_EQ(write_trace(d, TraceFormat::perfetto, folder_ / "none/t").error().code, Errc::io);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()),
                          std::filesystem::directory_iterator()),
            10)
      << "no leftovers";
}

TEST(TraceCsv, OneLinePerPlanStepAndNoFormulas) {
  TraceDocument d = document();
  d.kernels[1].node = "=cmd|' /C calc'!A0";
  d.kernels[2].node = "a,\"b\"";
  const std::string csv = trace_csv(d);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 7);
  EXPECT_NE(csv.find("\n0,node0,Gelu avx512,Gelu,forward,layers.0/attn,/n0 "
                     "/n1,fuse-elementwise,1e+09,128,4,6004,1501.0,1501,1501,1501,0.0\n"),
            std::string::npos)
      << csv;
  EXPECT_NE(csv.find("\n1,'=cmd"), std::string::npos) << csv;
  EXPECT_NE(csv.find("\"a,\"\"b\"\"\""), std::string::npos) << csv;
}

}  // namespace
}  // namespace gradloom
