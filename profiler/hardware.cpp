#include "profiler/hardware.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/base/file.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

using json = nlohmann::json;

constexpr std::int64_t kMostFileBytes = 1 << 20;
constexpr std::size_t kMostRows = 64, kMostTypeTimes = 1024;

// What others measured on H100 and H200: products of 620 to 790 of 989 TFLOP/s by cuBLASLt, attention of 64 wide heads over 1024
// positions at 230 to 280 by cuDNN, 4.1 of 4.8 TB/s read and written by kernels of elements, and nine tenths of that by the
// others; convolutions of ResNet-50 near half of the peak. A launch in a recorded graph takes some 2 us with filling and
// draining the device. Of links what NCCL counts with (src/graph/topo.h): 20 of 25 GB/s of a link of V100 and A100, 20.6 of H100,
// 40.1 of 50 of B200, 12 of 15.8 of PCI Express 3.0.
constexpr Reach kGpuReach{
    .memory = 0.77, .vectors = 0.6, .products = 0.70, .convolutions = 0.5, .attention = 0.25, .links = 0.8};
constexpr double kGpuLaunchNs = 2000;

std::vector<Hardware> data_sheets() {
  std::vector<Hardware> all;
  const auto add = [&](const char* id, const char* name, double gb, double gb_per_s, double link,
                       int processors, double f8, double bf16, double f16, double f32, double f64,
                       double vectors) {
    Hardware h;
    h.id = id;
    h.name = name;
    h.source = "its data sheet, and parts of it that others reached on an H200";
    h.memory_bytes = gb * 1e9;
    h.memory = {{0, gb_per_s}};
    for (const auto& [type, rate] :
         {std::pair{"f8e4m3fn", f8}, {"bf16", bf16}, {"f16", f16}, {"f32", f32}, {"f64", f64}})
      if (rate > 0) h.products[type] = rate * 1e3;
    h.vectors = vectors * 1e3;
    h.launch_ns = kGpuLaunchNs;
    h.link_bytes_per_ns = link;
    h.processors = processors;
    h.reach = kGpuReach;
    all.push_back(std::move(h));
  };
#define HARDWARE(id, name, gb, rate, link, processors, f8, bf16, f16, f32, f64, vectors) \
  add(#id, name, gb, rate, link, processors, f8, bf16, f16, f32, f64, vectors);
#include "profiler/hardware.def"
#undef HARDWARE
  return all;
}

Error not_hardware(const std::string& source, const std::string& why) {
  return {Errc::bad_input, escaped(source) + " describes no hardware: " + why};
}

// A positive number of an object.
Result<double> positive(const json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end() || !at->is_number())
    return Error{Errc::bad_input, fmt::format("no number '{}'", key)};
  const double value = at->get<double>();
  if (!(value > 0 && value < 1e30)) return Error{Errc::bad_input, fmt::format("'{}' is not above 0", key)};
  return value;
}

Status read_rates(const json& object, Hardware& h) {
  for (const char* key : {"memory", "products"}) {
    const auto rows = object.find(key);
    if (rows == object.end() || !rows->is_array() || rows->empty() || rows->size() > kMostRows)
      return Error{Errc::bad_input, fmt::format("no list '{}'", key)};
    for (const json& row : *rows)
      if (!row.is_object()) return Error{Errc::bad_input, fmt::format("a row of '{}' is no object", key)};
  }
  for (const json& row : object["memory"])
    h.memory.push_back({TRY(positive(row, "bytes")), TRY(positive(row, "bytes_per_second")) * 1e-9});
  for (const json& row : object["products"]) {
    const auto type = row.find("type");
    if (type == row.end() || !type->is_string() || !dtype_from_name(type->get<std::string>()).ok())
      return Error{Errc::bad_input, "a product has no type"};
    h.products[type->get<std::string>()] = TRY(positive(row, "flops_per_second")) * 1e-9;
  }
  return {};
}

// Files of older versions have none.
Status read_types(const json& object, Hardware& h) {
  const auto rows = object.find("types");
  if (rows == object.end()) return {};
  if (!rows->is_array() || rows->size() > kMostTypeTimes)
    return Error{Errc::bad_input, "'types' is no list of kernels"};
  for (const json& row : *rows) {
    const auto op = row.is_object() ? row.find("op") : row.end();
    const auto type = row.is_object() ? row.find("type") : row.end();
    if (!row.is_object() || op == row.end() || !op->is_string() || type == row.end() || !type->is_string())
      return Error{Errc::bad_input, "a row of 'types' names no operator and type"};
    h.types.push_back({op->get<std::string>(), type->get<std::string>(), TRY(positive(row, "size")),
                       TRY(positive(row, "ns"))});
  }
  return {};
}

}  // namespace

double Reach::of(Arithmetic arithmetic) const {
  switch (arithmetic) {
    case Arithmetic::vectors: return vectors;
    case Arithmetic::products: return products;
    case Arithmetic::convolutions: return convolutions;
    case Arithmetic::attention: return attention;
  }
  return 1;
}

double Hardware::bytes_per_ns(double bytes) const {
  double rate = memory.empty() ? 0 : memory.front().bytes_per_ns;
  for (const Memory& level : memory)
    if (level.bytes <= bytes) rate = level.bytes_per_ns;
  return rate;
}

double Hardware::product_flops_per_ns(std::string_view type) const {
  const auto at = products.find(std::string(type));
  return at == products.end() ? 0 : at->second;
}

std::span<const Hardware> known_hardware() {
  static const std::vector<Hardware> all = data_sheets();
  return all;
}

const Hardware* hardware_of_device(std::string_view name) {
  std::string letters;        // as ids are written: "rtx4090"
  std::vector<bool> goes_on;  // by letter: a digit stands right behind it
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (c == ' ') continue;
    letters += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    goes_on.push_back(i + 1 < name.size() && is_digit(name[i + 1]));
  }
  const Hardware* found = nullptr;
  for (const Hardware& h : known_hardware()) {
    const std::size_t at = letters.find(h.id);
    if (at == std::string::npos || goes_on[at + h.id.size() - 1]) continue;  // an A1000 is no A100
    if (found == nullptr || h.id.size() > found->id.size()) found = &h;
  }
  return found;
}

Result<Hardware> parse_hardware(std::string_view text, const std::string& source) {
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object()) return not_hardware(source, "it is no JSON object");
  Hardware h;
  if (const Status read = read_rates(object, h); !read.ok())
    return not_hardware(source, read.error().message);
  if (const Status read = read_types(object, h); !read.ok())
    return not_hardware(source, read.error().message);
  std::sort(h.memory.begin(), h.memory.end(), [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  // What a launch costs shows in the rates of the smallest: no level is slower than one that holds more.
  for (std::size_t i = h.memory.size() - 1; i-- > 0;)
    h.memory[i].bytes_per_ns = std::max(h.memory[i].bytes_per_ns, h.memory[i + 1].bytes_per_ns);
  // What kernels of vectors reach in f32 is what products do: nothing multiplies and adds faster.
  h.vectors = h.product_flops_per_ns("f32");
  for (const auto& [type, rate] : h.products)
    if (h.vectors <= 0) h.vectors = rate;
  if (const auto launch = positive(object, "launch_ns")) h.launch_ns = *launch;
  if (const auto memory = positive(object, "memory_bytes")) h.memory_bytes = *memory;
  for (const char* key : {"name", "device"})
    if (const auto at = object.find(key); h.name.empty() && at != object.end() && at->is_string())
      h.name = at->get<std::string>();
  h.source = "measured (" + source + ")";
  return h;
}

Result<Hardware> find_hardware(const std::string& name_or_path) {
  std::vector<std::string> ids;
  for (const Hardware& h : known_hardware()) {
    if (h.id == name_or_path) return h;
    ids.push_back(h.id);
  }
  const auto text = read_file_limited(name_or_path, kMostFileBytes);
  if (text) return parse_hardware(*text, name_or_path);
  if (name_or_path.find_first_of("./") != std::string::npos) return text.error();
  return Error{Errc::usage, fmt::format("'{}' is no hardware that is described: {}, or a file that devices "
                                        "--measure --json wrote",
                                        escaped(name_or_path), fmt::join(ids, ", "))};
}

}  // namespace gradloom
