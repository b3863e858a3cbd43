#include "app/build_info.h"

#include <dnnl.h>
#include <google/protobuf/stubs/common.h>
#include <sqlite3.h>
#include <zlib.h>

#include "profiler/environment.h"

#ifdef GRADLOOM_DESKTOP
#include "app/desktop/gui_libraries.h"
#endif

namespace gradloom {
namespace {

std::string dotted(int major, int minor, int patch) {
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

BuildInfo read_build_info() {
  const Environment environment = read_environment();
  BuildInfo info;
  info.version = environment.version;
  info.commit = environment.git_id;
  info.commit_date = info.commit.empty() ? "" : GRADLOOM_GIT_DATE;
  info.compiler = environment.compiler;
  info.isas = GRADLOOM_ISAS;
  info.isa = environment.isa;
  info.license = "MIT";
  const dnnl_version_t* const dnnl = dnnl_version();
  constexpr int kProtobuf = GOOGLE_PROTOBUF_VERSION;  // 3021012
  info.libraries = {{"oneDNN", dotted(dnnl->major, dnnl->minor, dnnl->patch)},
                    {"SQLite", sqlite3_libversion()},
                    {"protobuf", dotted(kProtobuf / 1000000, kProtobuf / 1000 % 1000, kProtobuf % 1000)},
                    {"zlib", zlibVersion()}};
#ifdef GRADLOOM_DESKTOP
  for (auto& library : gui_libraries()) info.libraries.push_back(std::move(library));
#endif
  return info;
}

}  // namespace

const BuildInfo& build_info() {
  static const BuildInfo info = read_build_info();
  return info;
}

Json build_info_json() {
  const BuildInfo& b = build_info();
  Json libraries = Json::object();
  for (const auto& [name, version] : b.libraries) libraries[name] = version;
  return {{"version", b.version},   {"commit", b.commit},  {"commit_date", b.commit_date},
          {"compiler", b.compiler}, {"isas", b.isas},      {"isa", b.isa},
          {"libraries", libraries}, {"license", b.license}};
}

}  // namespace gradloom
