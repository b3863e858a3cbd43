// O7, O8, O15: files that a model names, files that are written for it, and files too large for memory.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/hostile/build.h"

namespace gradloom::hostile {

namespace {

using Cases = std::vector<Case>;
namespace fs = std::filesystem;

constexpr int kBad = 3, kLimit = 4, kIo = 5;

void entry(TensorProto& tensor, const std::string& key, const std::string& value) {
  auto* pair = tensor.add_external_data();
  pair->set_key(key);
  pair->set_value(value);
}

// plain() with its weight, four floats, in a file.
ModelProto external(const std::string& location, const std::string& offset = "",
                    const std::string& length = "") {
  return changed(plain(), [&](ModelProto&, GraphProto& g) {
    TensorProto& w = *g.mutable_initializer(0);
    w.clear_float_data();
    w.set_data_location(TensorProto::EXTERNAL);
    entry(w, "location", location);
    if (!offset.empty()) entry(w, "offset", offset);
    if (!length.empty()) entry(w, "length", length);
  });
}

using Prepare = std::function<void(const Place&)>;

std::function<void(const Place&)> both(const ModelProto& model, const Prepare& prepare) {
  return [bytes = model.SerializeAsString(), prepare](const Place& place) {
    place.write("model.onnx", bytes);
    prepare(place);
  };
}

// Row O7: paths out of the model's folder.
void paths_that_lead_away(Cases& cases) {
  const auto add = [&](
                       const std::string& name, const std::string& location, int code,
                       const std::string& says, const Prepare& prepare = [](const Place&) {},
                       bool opens = false) {
    cases.push_back({"O7", name, both(external(location), prepare), refused(code, says), opens});
  };
  add("parent folder", "../outside/secret.bin", kBad, "it leaves the model's folder");
  add("parent folder later", "a/../../outside/secret.bin", kBad, "it leaves the model's folder",
      [](const Place& p) { fs::create_directory(p.model + "/a"); });
  add("parent folder last", "a/..", kBad, "it leaves the model's folder");
  add("dots between", "./.././outside/secret.bin", kBad, "it leaves the model's folder");
  add("root", "/etc/passwd", kBad, "it is absolute");
  add("root twice", "//etc/passwd", kBad, "it is absolute");
  add("memory of the process", "/proc/self/mem", kBad, "it is absolute");
  add("drive", "C:\\Windows\\win.ini", kBad, "a backslash");
  add("drive with slashes", "C:/Windows/win.ini", kBad, "a colon");
  add("share", "\\\\server\\share", kBad, "a backslash");
  add("address", "file:///etc/passwd", kBad, "a colon");
  add("NUL", std::string("weights.bin\0../outside/secret.bin", 33), kBad, "a NUL byte");
  add("empty", "", kBad, "it is empty");
  add("dot", ".", kBad, "it names a folder");
  add("slash at the end", "weights.bin/", kBad, "it names a folder");
  add("5000 bytes", std::string(5000, 'x'), kBad, "it is too long");
  add("2000 folders", repeated("a/", 2000) + "b", kIo, "cannot open");
  add("missing", "weights.bin", kIo, "No such file");
  add("tilde", "~/weights.bin", kIo, "No such file");
  add("variable", "$HOME/weights.bin", kIo, "No such file");
}

// Row O7: links, and files that are none.
void links_that_lead_away(Cases& cases) {
  const auto add = [&](
                       const std::string& name, const std::string& location, int code,
                       const std::string& says, const Prepare& prepare = [](const Place&) {},
                       bool opens = false) {
    cases.push_back({"O7", name, both(external(location), prepare), refused(code, says), opens});
  };
  const auto link = [](const std::string& target, const std::string& name) {
    return [=](const Place& p) { fs::create_symlink(target, p.model + "/" + name); };
  };
  add("symbolic link", "weights.bin", kBad, "is a symbolic link",
      link("../outside/secret.bin", "weights.bin"));
  add("absolute symbolic link", "weights.bin", kBad, "is a symbolic link",
      [](const Place& p) { fs::create_symlink(p.outside + "/secret.bin", p.model + "/weights.bin"); });
  add("symbolic link inside", "weights.bin", kBad, "is a symbolic link", [](const Place& p) {
    p.write("real.bin", std::string(16, '\0'));
    fs::create_symlink("real.bin", p.model + "/weights.bin");
  });
  add("linked folder", "d/secret.bin", kBad, "is a symbolic link", link("../outside", "d"));
  add("linked folder deep", "a/d/secret.bin", kBad, "is a symbolic link", [](const Place& p) {
    fs::create_directory(p.model + "/a");
    fs::create_symlink("../../outside", p.model + "/a/d");
  });
  add("link to itself", "weights.bin", kBad, "is a symbolic link", link("weights.bin", "weights.bin"));
  add("link into the process", "d/root/etc/passwd", kBad, "is a symbolic link", link("/proc/self", "d"));
  add(
      "hard link", "weights.bin", kBad, "is a hard link to another file",
      [](const Place& p) { fs::create_hard_link(p.outside + "/secret.bin", p.model + "/weights.bin"); },
      true);
  add("pipe", "weights.bin", kBad, "is not a regular file",
      [](const Place& p) { ::mkfifo((p.model + "/weights.bin").c_str(), 0600); });
  add("folder", "weights.bin", kBad, "is not a regular file",
      [](const Place& p) { fs::create_directory(p.model + "/weights.bin"); });
  add("file used as a folder", "weights.bin/x", kBad, "not a folder",
      [](const Place& p) { p.write("weights.bin", std::string(16, '\0')); });
  add("device", "weights.bin", kBad, "", [](const Place& p) {
    // Only root makes devices; for others the link to one is the nearest thing.
    if (::mknod((p.model + "/weights.bin").c_str(), S_IFCHR | 0666, 1 << 8 | 5) != 0)
      fs::create_symlink("/dev/zero", p.model + "/weights.bin");
  });
}

// Row O7: offsets and lengths.
void parts_of_files(Cases& cases) {
  const auto part = [&](const std::string& name, const std::string& offset, const std::string& length,
                        int code, const std::string& says) {
    cases.push_back({"O7", name,
                     both(external("weights.bin", offset, length),
                          [](const Place& p) { p.write("weights.bin", std::string(100, '\1')); }),
                     refused(code, says)});
  };
  part("offset behind the end", "101", "", kBad, "beyond the end");
  part("end behind the end", "85", "", kBad, "beyond the end");
  part("offset 2^63 - 1", "9223372036854775807", "", kBad, "beyond the end");
  part("offset 2^64", "18446744073709551616", "", kBad, "is not a byte count");
  part("negative offset", "-1", "", kBad, "is not a byte count");
  part("offset in letters", "0x10", "", kBad, "is not a byte count");
  part("offset with a tail", "16 ", "", kBad, "is not a byte count");
  part("length of another size", "0", "17", kBad, "external length is 17 bytes, the type needs 16");
  part("length 2^63 - 1", "0", "9223372036854775807", kBad, "the type needs 16");
  part("negative length", "0", "-16", kBad, "is not a byte count");
  cases.push_back({"O7",
                   "as it should be",
                   both(external("./weights.bin", "16", "16"),
                        [](const Place& p) { p.write("weights.bin", std::string(100, '\1')); }),
                   {inspect(0, ""), train(0, "")}});
}

// Row O7: the entries that say where contents are.
void external_data_itself(Cases& cases) {
  cases.push_back({"O7", "location twice",
                   both(changed(external("weights.bin"),
                                [](ModelProto&, GraphProto& g) {
                                  entry(*g.mutable_initializer(0), "location", "../outside/secret.bin");
                                }),
                        [](const Place& p) { p.write("weights.bin", std::string(16, '\1')); }),
                   refused(kBad, "")});
  cases.push_back(
      {"O7", "no location",
       both(changed(external("weights.bin"),
                    [](ModelProto&, GraphProto& g) { g.mutable_initializer(0)->clear_external_data(); }),
            [](const Place&) {}),
       refused(kBad, "it is empty")});
  cases.push_back({"O7", "a constant in a file",
                   both(
                       [] {
                         ModelProto model = parsed(
                             "g (float[2] x) => (float y) { c = Constant<value = float[2] {1, 2}>() h = "
                             "Mul(x, c) y = ReduceSum<keepdims = 0>(h) }");
                         TensorProto& t =
                             *model.mutable_graph()->mutable_node(0)->mutable_attribute(0)->mutable_t();
                         t.clear_float_data();
                         t.set_data_location(TensorProto::EXTERNAL);
                         entry(t, "location", "../outside/secret.bin");
                         return model;
                       }(),
                       [](const Place&) {}),
                   refused(kBad, "it leaves the model's folder")});
}

// Row O8: what is written lies where the user said.
void written_files(Cases& cases) {
  for (const char* name : {"../../outside/x", "/tmp/gradloom-x", "a/b", "..", "x\nname"}) {
    const ModelProto model = changed(plain(), [&](ModelProto& m, GraphProto& g) {
      g.set_name(name);
      m.set_producer_name(name);
      g.mutable_initializer(0)->set_name(name);
      g.mutable_node(0)->set_input(1, name);
      g.mutable_node(0)->set_name(name);
    });
    cases.push_back({"O8",
                     std::string("trained, ") + name,
                     file(model),
                     {train(0, "",
                            {"--save-params", "p.npz", "--export-onnx", "e.onnx", "--session", "s.db",
                             "--profile", "all"}),
                      {{"export", "s.db", "-o", "r.json"}, 0, ""},
                      {{"trace", "s.db", "-o", "t.json"}, 0, ""},
                      {{"inspect", "e.onnx"}, 0, ""}}});
  }
  // Weights in a file stay inside the model that is written.
  cases.push_back(
      {"O8",
       "exported with its weights",
       both(external("weights.bin"), [](const Place& p) { p.write("weights.bin", std::string(16, '\1')); }),
       {train(0, "", {"--export-onnx", "e.onnx"}), {{"inspect", "e.onnx"}, 0, ""}}});
}

// Row O15: no disk is needed for these, they are holes.
void large_files(Cases& cases) {
  const auto hole = [](const std::string& path, std::int64_t bytes) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ::ftruncate(fd, bytes) != 0) std::abort();
    ::close(fd);
  };
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  for (const auto& [name, bytes] : {std::pair<const char*, std::int64_t>{"model of 2 GiB", 2 * kGiB},
                                    {"model of 3 GiB", 3 * kGiB},
                                    {"model of 1 TiB", 1024 * kGiB}})
    cases.push_back({"O15", name,
                     [hole, bytes = bytes](const Place& p) { hole(p.model + "/model.onnx", bytes); },
                     refused(kLimit, "longer than the limit of 2147483647 bytes")});
  cases.push_back({"O15", "model of 1 GiB of nothing",
                   [hole](const Place& p) { hole(p.model + "/model.onnx", kGiB); },
                   refused(kBad, "not an ONNX file")});
  const auto sized = [](ModelProto model, std::int64_t floats) {
    model.mutable_graph()->mutable_initializer(0)->set_dims(0, floats);
    return model;
  };
  cases.push_back({"O15", "weights of 1 TiB in a hole",
                   both(sized(external("weights.bin"), 256 * kGiB),
                        [hole](const Place& p) { hole(p.model + "/weights.bin", 1024 * kGiB); }),
                   refused(kLimit, "does not fit in memory")});
  cases.push_back({"O15",
                   "a part of 1 TiB",
                   both(external("weights.bin", std::to_string(1023 * kGiB)),
                        [hole](const Place& p) { hole(p.model + "/weights.bin", 1024 * kGiB); }),
                   {inspect(0, ""), train(0, "")}});
  cases.push_back({"O15", "weights of 1 TiB without them",
                   both(sized(external("weights.bin"), 256 * kGiB),
                        [](const Place& p) { p.write("weights.bin", std::string(16, '\1')); }),
                   refused(kBad, "beyond the end")});
}

}  // namespace

std::vector<Case> external_cases() {
  Cases cases;
  paths_that_lead_away(cases);
  links_that_lead_away(cases);
  parts_of_files(cases);
  external_data_itself(cases);
  written_files(cases);
  large_files(cases);
  return cases;
}

}  // namespace gradloom::hostile
