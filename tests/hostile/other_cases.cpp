// What is not ONNX: data (D), parameters (P), recipes (R), sessions (S), test folders (C).
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/hostile/build.h"
#include "tests/paths.h"

namespace gradloom::hostile {

namespace {

using Cases = std::vector<Case>;
namespace fs = std::filesystem;

constexpr int kUsage = 2, kBad = 3, kLimit = 4, kIo = 5;

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string little(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text.push_back(i < 8 ? static_cast<char>(value >> (8 * i)) : '\0');
  return text;
}

std::string npy(const std::string& dict, const std::string& data) {
  return std::string("\x93NUMPY\1\0", 8) + little(dict.size(), 2) + dict + data;
}

// An .npz with one array of float zeros, deflated: about a thousandth of its size.
std::string deflated_zeros(const std::string& name, std::int64_t bytes) {
  std::string header =
      npy("{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(bytes / 4) + ",), }", "");
  std::string packed;
  z_stream stream{};
  if (deflateInit2(&stream, 1, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) std::abort();
  const std::string zeros(1 << 20, '\0');
  uLong crc = crc32(0, reinterpret_cast<const Bytef*>(header.data()), static_cast<uInt>(header.size()));
  const auto feed = [&](const std::string& block, int flush) {
    char buffer[1 << 16];
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(block.data()));
    stream.avail_in = static_cast<uInt>(block.size());
    do {
      stream.next_out = reinterpret_cast<Bytef*>(buffer);
      stream.avail_out = sizeof buffer;
      deflate(&stream, flush);
      packed.append(buffer, sizeof buffer - stream.avail_out);
    } while (stream.avail_out == 0);
  };
  feed(header, Z_NO_FLUSH);
  for (std::int64_t done = 0; done < bytes; done += 1 << 20) {
    crc = crc32(crc, reinterpret_cast<const Bytef*>(zeros.data()), static_cast<uInt>(zeros.size()));
    feed(zeros, Z_NO_FLUSH);
  }
  feed("", Z_FINISH);
  deflateEnd(&stream);
  const std::string shared = little(20, 2) + little(0, 2) + little(Z_DEFLATED, 2) + little(0, 4) +
                             little(crc, 4) + little(packed.size(), 4) +
                             little(header.size() + static_cast<std::uint64_t>(bytes), 4) +
                             little(name.size() + 4, 2) + little(0, 2);
  const std::string local = std::string("PK\3\4", 4) + shared + name + ".npy" + packed;
  const std::string directory =
      std::string("PK\1\2", 4) + little(20, 2) + shared + little(0, 10) + little(0, 4) + name + ".npy";
  return local + directory + std::string("PK\5\6", 4) + little(0, 4) + little(1, 2) + little(1, 2) +
         little(directory.size(), 4) + little(local.size(), 4) + little(0, 2);
}

// Row D: zip archives.
void archives(Cases& cases) {
  const auto add = [&](const std::string& name, const std::string& bytes, int code, const std::string& says,
                       const std::string& file = "d.npz") {
    cases.push_back({"D",
                     name,
                     [=](const Place& place) {
                       place.write("model.onnx", plain().SerializeAsString());
                       place.write(file, bytes);
                     },
                     {train(code, says, {"--data", "npz:" + file})}});
  };
  add("empty", "", kBad, "neither a zip archive nor a NumPy array");
  add("text", "x,y\n1,2\n", kBad, "not a zip archive");
  add("zip without an end", std::string("PK\3\4", 4) + std::string(200, '\0'), kBad, "no end record");
  add("empty archive", std::string("PK\5\6", 4) + std::string(18, '\0'), kBad, "no array for input x");
  const std::string end = std::string("PK\5\6", 4) + little(0, 4);
  add("directory outside",
      end + little(1, 2) + little(1, 2) + little(500, 4) + little(4000, 4) + little(0, 2), kBad, "outside");
  add("directory of 4 GiB",
      end + little(1, 2) + little(1, 2) + little(0xfffffffe, 4) + little(0, 4) + little(0, 2), kLimit,
      "too long");
  add("65535 entries", end + little(65535, 2) + little(65535, 2) + little(0, 4) + little(0, 4) + little(0, 2),
      kLimit, "65534");
  add("entries that are not there",
      end + little(3, 2) + little(3, 2) + little(0, 4) + little(0, 4) + little(0, 2), kBad, "damaged");
}

// Row D: NumPy arrays.
void arrays(Cases& cases) {
  const auto add = [&](const std::string& name, const std::string& bytes, int code, const std::string& says,
                       const std::string& file = "d.npz") {
    cases.push_back({"D",
                     name,
                     [=](const Place& place) {
                       place.write("model.onnx", plain().SerializeAsString());
                       place.write(file, bytes);
                     },
                     {train(code, says, {"--data", "npz:" + file})}});
  };
  const auto array = [&](const std::string& name, const std::string& dict, const std::string& contents,
                         int code, const std::string& says) {
    add(name, npy(dict, contents), code, says, "x.npy");
    cases.back().runs.push_back(train(code, says, {"--data", "npy:x=x.npy"}));  // that stays in its file
  };
  array("pickled objects", "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "cos\nsystem\n", kBad,
        "'|O', which is not supported");
  array("dims that overflow",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4611686018427387904), }", "",
        kLimit, "63 bits");
  array("dims of 30 digits",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (100000000000000000000000000000,), }", "", kBad,
        "damaged header");
  array("negative dims", "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "", kBad,
        "damaged header");
  array("billion numbers of nothing", "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000,), }",
        "", kBad, "needs 4000000000 bytes, but has 0");
  array("nested tuples", "{'descr': '<f4', 'fortran_order': False, 'shape': " + repeated("(", 60000) + ", }",
        "", kBad, "damaged header");
  array("code in the header", "{'descr': __import__('os').system('id'), 'shape': (1,)}", "", kBad,
        "damaged header");
  array("escape in the header", "{'descr': '\x1b[31m', 'fortran_order': False, 'shape': (1,), }", "", kBad,
        "\\x1b[31m");
  array("rank of 10000",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + repeated("1, ", 10000) + "), }", "", kBad,
        "damaged header");
  array("another shape", "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 5), }", std::string(60, '\0'),
        kBad, "array x is f32[3, 5]");
  array("another type", "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 2, 4), }",
        std::string(24, '\0'), kBad, "needs f32");
}

// Row D: archives that inflate, and archives that end early.
void large_and_cut_archives(Cases& cases) {
  // A small archive that inflates to 320 MiB: refused by its header, before it is inflated.
  cases.push_back({"D",
                   "320 MB of zeros in a small archive",
                   [](const Place& place) {
                     place.write("model.onnx", plain().SerializeAsString());
                     place.write("d.npz", deflated_zeros("x", std::int64_t{320} << 20));
                   },
                   {train(kBad, "array x is f32[83886080]", {"--data", "npz:d.npz"})}});
  cases.push_back({"D",
                   "an array that nobody wants",
                   [](const Place& place) {
                     place.write("model.onnx", plain().SerializeAsString());
                     place.write("d.npz", deflated_zeros("z", std::int64_t{320} << 20));
                   },
                   {train(kBad, "no array for input x (f32[2, 4]); it has z", {"--data", "npz:d.npz"})}});
  Case cuts{"D",
            "cut archive",
            [](const Place& place) {
              place.write("model.onnx", plain().SerializeAsString());
              const std::string whole = bytes_of(GRADLOOM_SOURCE_DIR "/tests/models/mlp/batches.npz");
              for (std::size_t at = 0; at < whole.size(); at += 150)
                place.write("cut-" + std::to_string(at) + ".npz", whole.substr(0, at));
            },
            {}};
  for (std::size_t at = 0; at < 2134; at += 150)
    cuts.runs.push_back(train(kBad, "cut-", {"--data", "npz:cut-" + std::to_string(at) + ".npz"}));
  cases.push_back(std::move(cuts));
}

// Row D: labels, indices and tokens that point outside.
void labels_and_tokens(Cases& cases) {
  // Labels and indices that point outside.
  const ModelProto embedding = parsed(
      "g (int64[2] i) => (float y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> { h = Gather(w, i) y = "
      "ReduceSum<keepdims = 0>(h) }");
  for (const auto& [name, value] : {std::pair<const char*, std::int64_t>{"index 3 of 3", 3},
                                    {"index 2^62", std::int64_t{1} << 62},
                                    {"least index", INT64_MIN},
                                    {"index -4 of 3", -4}})
    cases.push_back({"D",
                     name,
                     [=, value = value](const Place& place) {
                       place.write("model.onnx", embedding.SerializeAsString());
                       place.write("i.npy", npy("{'descr': '<i8', 'fortran_order': False, 'shape': (1, 2), }",
                                                little(0, 8) + little(static_cast<std::uint64_t>(value), 8)));
                     },
                     {train(kBad, "is outside of -3..2", {"--data", "npz:i.npy"})}});

  const auto tokens = [&](const std::string& name, const std::function<void(const Place&)>& make, int code,
                          const std::string& says) {
    cases.push_back({"D",
                     name,
                     [=](const Place& place) {
                       place.write("model.onnx", embedding.SerializeAsString());
                       make(place);
                     },
                     {train(code, says, {"--data", "tokens:t"})}});
  };
  cases.push_back({"D",
                   "tokens of two bytes over the vocabulary, and half a token",
                   [=](const Place& place) {
                     place.write("model.onnx", embedding.SerializeAsString());
                     place.write("t", std::string(7, '\1') + "\2");
                     place.write("half", std::string(7, '\1'));
                   },
                   {train(kBad, "token 257 at 0 is not below 3", {"--data", "tokens{bytes=2}:t"}),
                    train(kBad, "7 bytes are no whole number of tokens", {"--data", "tokens{bytes=2}:half"}),
                    train(kUsage, "1, 2 or 4 bytes", {"--data", "tokens{bytes=3}:t"})}});
  cases.push_back({"D",
                   "a folder with a file that is no archive",
                   [=](const Place& place) {
                     place.write("model.onnx", embedding.SerializeAsString());
                     fs::create_directory(place.model + "/f");
                     place.write("f/a.npz", "nothing");
                   },
                   {train(kBad, "a.npz", {"--data", "npz:f"})}});
  tokens(
      "no tokens", [](const Place& p) { p.write("t", ""); }, kBad, "0 bytes");
  tokens(
      "byte over the vocabulary", [](const Place& p) { p.write("t", std::string(100, '\3')); }, kBad,
      "byte 3 at 0 is not below 3");
  tokens(
      "missing tokens", [](const Place&) {}, kIo, "cannot open");
  tokens(
      "folder of tokens", [](const Place& p) { fs::create_directory(p.model + "/t"); }, kIo,
      "not a regular file");
  tokens(
      "endless tokens", [](const Place& p) { fs::create_symlink("/dev/zero", p.model + "/t"); }, kIo,
      "not a regular file");
}

// A safetensors file, and one of a tensor w.
std::string safetensors(const std::string& header, const std::string& data) {
  return little(header.size(), 8) + header + data;
}
std::string only_w(const std::string& shape, const std::string& places, std::size_t bytes) {
  return safetensors(R"({"w":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + places + "}}",
                     std::string(bytes, '\x3f'));
}

// Row P: what an optimizer kept, from others.
void optimizers(Cases& cases) {
  const auto optimizer = [&](const std::string& name, const std::string& bytes, int code,
                             const std::string& says) {
    cases.push_back(
        {"P",
         "optimizer: " + name,
         [=](const Place& place) {
           place.write("model.onnx", plain().SerializeAsString());
           place.write("o.safetensors", bytes);
         },
         {train(code, says, {"--load-optimizer", "o.safetensors", "--optimizer", "sgd{momentum=0.9}"})}});
  };
  const auto kept = [&](const std::string& step, const std::string& bytes) {
    return safetensors(
        R"({"w.momentum_buffer":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"step":)" + step + "}",
        std::string(16, '\x3f') + bytes);
  };
  const std::string one = R"({"dtype":"F32","shape":[],"data_offsets":[16,20]})";
  optimizer("as it should be", kept(one, std::string("\0\0\0\0", 4)), 0, "");
  optimizer("no count", only_w("[4]", "[0,16]", 16), kBad, "does not say how many updates were made");
  optimizer("half an update", kept(one, std::string("\0\0\0\x3f", 4)), kBad, "'step' is no count of updates");
  optimizer("NaN updates", kept(one, std::string("\0\0\xc0\x7f", 4)), kBad, "'step' is no count of updates");
  optimizer("10^30 updates", kept(one, std::string("\xca\xf2\x49\x71", 4)), kBad,
            "'step' is no count of updates");
  optimizer("counts of a row",
            kept(R"({"dtype":"F32","shape":[2],"data_offsets":[16,24]})", std::string(8, '\0')), kBad,
            "'step' is no count of updates");
  optimizer("a pickle", "\x80\x02}q\x01(X\x05state\x71\x02", kBad, "not a safetensors file");
}

// Row P: parameters and checkpoints from others.
void parameters(Cases& cases) {
  const auto add = [&](const std::string& name, const std::string& bytes, int code, const std::string& says) {
    cases.push_back({"P",
                     name,
                     [=](const Place& place) {
                       place.write("model.onnx", plain().SerializeAsString());
                       place.write("p.safetensors", bytes);
                     },
                     {train(code, says, {"--load-params", "p.safetensors"})}});
  };
  add("as it should be", only_w("[4]", "[0,16]", 16), 0, "");
  add("empty", "", kBad, "shorter than 8 bytes");
  add("a pickle", "\x80\x02}q\x01(X\x01wq\1ctorch._utils\n_rebuild_tensor_v2\n", kBad,
      "not a safetensors file");
  add("header of 2^64", little(~std::uint64_t{0}, 8) + "{}", kBad, "not a safetensors file");
  add("another shape", only_w("[2,2]", "[0,16]", 16), kBad, "'w' is f32[2, 2]; expected f32[4]");
  add("dims that overflow", only_w("[4611686018427387904,16]", "[0,16]", 16), kLimit, "63 bits");
  add("tensor behind the end", only_w("[400000000000]", "[0,1600000000000]", 16), kBad, "truncated");
  add("hole", only_w("[4]", "[8,24]", 24), kBad, "leaves a hole");
  add("escape sequence",
      safetensors("{\"\\u001b[31m\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", "abcd"), kBad,
      "\\x1b[31m");
  add("100000 brackets", safetensors("{\"w\":" + repeated("[", 100000), ""), kBad, "damaged header");
  add("100000 nested objects", safetensors(repeated("{\"a\":", 100000), ""), kBad, "unknown key 'a'");
  std::string many = "{";
  for (int i = 0; i < 600'000; ++i)
    many += "\"" + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)";
  add("600000 tensors", safetensors(many + "}", ""), kLimit, "more than 500000 tensors");
  many = "{\"__metadata__\":{";
  for (int i = 0; i < 200'000; ++i) many += "\"" + std::to_string(i) + "\":\"\",";
  add("200000 metadata", safetensors(many, ""), kLimit, "more than 100000 entries");
  cases.push_back({"P",
                   "link to something endless",
                   [](const Place& place) {
                     place.write("model.onnx", plain().SerializeAsString());
                     fs::create_symlink("/dev/zero", place.model + "/p.safetensors");
                   },
                   {train(kBad, "is not a regular file", {"--load-params", "p.safetensors"})}});
  cases.push_back({"P",
                   "no checkpoint",
                   [](const Place& place) {
                     place.write("model.onnx", plain().SerializeAsString());
                     fs::create_directories(place.model + "/c/step-00000001");
                     place.write("c/step-00000001/state.json", "{\"gradloom_checkpoint\": 1}");
                     fs::create_directories(place.model + "/d");
                   },
                   {train(kBad, "state.json: is damaged", {"--resume", "c"}),
                    train(kBad, "no checkpoint, and none in it", {"--resume", "d"}),
                    train(kIo, "cannot open the checkpoint e", {"--resume", "e"})}});
}

void recipes(Cases& cases) {
  const auto add = [&](const std::string& name, const std::string& text, int code, const std::string& says) {
    cases.push_back(
        {"R",
         name,
         [=](const Place& place) {
           place.write("model.onnx", plain().SerializeAsString());
           place.write("r.json", text);
         },
         {{{"train", "--recipe", "r.json"}, code, says}, {{"plan", "--recipe", "r.json"}, code, says}}});
  };
  const auto with = [](const std::string& members) {
    return std::string("{\"gradloom_recipe\": 1, \"model\": {\"path\": \"model.onnx\"}, \"steps\": 1") +
           (members.find("passes") == std::string::npos ? ", \"passes\": []" : "") + members + "}";
  };
  add("as it should be", with(""), 0, "");
  add("empty", "", kBad, "r.json");
  add("not JSON", "model: model.onnx", kBad, "r.json");
  add("list", "[]", kBad, "r.json");
  add("cut", with("").substr(0, 30), kBad, "r.json");
  add("100000 brackets", repeated("[", 100000), kBad, "r.json");
  add("100000 nested objects", repeated("{\"a\":", 100000), kBad, "r.json");
  add("key twice", with(", \"steps\": 2"), kBad, "r.json");
  add("unknown key", with(", \"command\": \"rm -rf /\""), kBad, "command");
  add("1e999", with(", \"clip_norm\": 1e999"), kBad, "r.json");
  add("NaN", with(", \"clip_norm\": NaN"), kBad, "r.json");
  add("2^63", with(", \"seed\": 1, \"accumulate\": 9223372036854775808"), kBad, "accumulate");
  add("-1 steps",
      "{\"gradloom_recipe\": 1, \"model\": {\"path\": \"model.onnx\"}, \"passes\": [], \"steps\": -1}", kBad,
      "steps");
  add("not UTF-8", with(", \"loss\": \"\xff\xfe\""), kBad, "r.json");
  add("escape sequence", with(", \"loss\": \"\\u001b[31m\""), kUsage, "\\x1b[31m");
  add("from the future", "{\"gradloom_recipe\": 999}", kBad, "newer Gradloom");
  add("unknown pass", with(", \"passes\": [{\"name\": \"rm\"}]"), kBad, "rm");
  add("option out of range",
      with(", \"passes\": [{\"name\": \"fuse-elementwise\", \"options\": {\"max_nodes\": 99999999999}}]"),
      kBad, "max_nodes");
  add("data of another kind", with(", \"data\": \"http://example.com/x\""), kUsage, "data must be");
  cases.back().runs.pop_back();  // a plan reads no data
  add("wrong model hash",
      "{\"gradloom_recipe\": 1, \"model\": {\"path\": \"model.onnx\", \"hash\": "
      "\"00000000000000000000000000000000\"}, \"passes\": [], \"steps\": 1}",
      kBad, "is not the one of the recipe");
  add("text of 20 MB", with(", \"loss\": \"" + std::string(20000000, 'x') + "\""), kLimit,
      "longer than the limit");
  cases.back().runs.pop_back();
}

void sessions(Cases& cases) {
  const auto add = [&](const std::string& name, const std::string& bytes, int code, const std::string& says) {
    cases.push_back({"S",
                     name,
                     [=](const Place& place) {
                       place.write("model.onnx", plain().SerializeAsString());
                       place.write("s.db", bytes);
                     },
                     {{{"runs", "s.db"}, code, says},
                      {{"show", "s.db"}, code, says},
                      {{"trace", "s.db", "-o", "t.json"}, code, says},
                      {{"export", "s.db", "-o", "r.json"}, code, says},
                      train(code, says, {"--session", "s.db"})}});
  };
  add("text", "not a database at all", kBad, "s.db");
  add("only the magic", "SQLite format 3", kBad, "s.db");
  add("header and rubbish", std::string("SQLite format 3\0", 16) + repeated("\xa5", 4080), kBad, "s.db");
  // Another program's database: an empty one, as `sqlite3 s.db 'create table t(a)'` makes it, is two pages.
  cases.push_back({"S", "missing", [](const Place&) {}, {{{"runs", "s.db"}, kIo, "s.db"}}});
  cases.push_back({"S",
                   "folder",
                   [](const Place& p) { fs::create_directory(p.model + "/s.db"); },
                   {{{"runs", "s.db"}, kBad, "s.db"}}});
}

void test_folders(Cases& cases) {
  const auto add = [&](const std::string& name, const std::string& input, const std::string& says) {
    cases.push_back({"C",
                     name,
                     [=](const Place& place) {
                       fs::create_directories(place.model + "/f/test_data_set_0");
                       place.write(
                           "f/model.onnx",
                           parsed("g (float[2] x) => (float[2] y) { y = Relu(x) }").SerializeAsString());
                       place.write("f/test_data_set_0/input_0.pb", input);
                     },
                     {{{"check", "f"}, 1, says}}});
  };
  TensorProto outside;
  outside.set_data_type(TensorProto::FLOAT);
  outside.add_dims(2);
  outside.set_data_location(TensorProto::EXTERNAL);
  auto* location = outside.add_external_data();
  location->set_key("location");
  location->set_value("../../../outside/secret.bin");
  add("input in a file outside", outside.SerializeAsString(), "external data is not allowed here");
  add("empty input", "", "it is empty");
  add("input cut", outside.SerializeAsString().substr(0, 20), "truncated");
  add("input of a billion", number_field(1, 1000000000) + number_field(2, 1) + field(9, "abc"),
      "needs 4000000000 bytes");
  add("input that is a model", plain().SerializeAsString(), "input_0.pb");
}

}  // namespace

std::vector<Case> other_cases() {
  Cases cases;
  archives(cases);
  arrays(cases);
  large_and_cut_archives(cases);
  labels_and_tokens(cases);
  parameters(cases);
  optimizers(cases);
  recipes(cases);
  sessions(cases);
  test_folders(cases);
  return cases;
}

}  // namespace gradloom::hostile
