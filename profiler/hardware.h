// What a processor reaches at most: a roof for each kind of arithmetic and for each level of memory, from its data sheet or
// from measurements (gradloom devices --measure). roofline.h says what kernels take under them.
#pragma once

#include <array>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/ir/op.h"
#include "profiler/type_times.h"

namespace gradloom {

// The parts of the roofs that well-tuned kernels reach, 0..1.
struct Reach {
  double memory = 1, vectors = 1, products = 1, convolutions = 1, attention = 1, links = 1;
  double of(Arithmetic arithmetic) const;
};

struct Hardware {
  // A kernel that touches at most so many bytes, and the next level's, is served at this rate: of one that reads and writes.
  struct Memory {
    double bytes = 0, bytes_per_ns = 0;
  };
  std::string id;      // "h200"; empty: measured
  std::string name;    // "NVIDIA H200 SXM"
  std::string source;  // of the numbers
  double memory_bytes = 0;
  std::vector<Memory> memory;              // ascending; the last is what no cache holds
  std::map<std::string, double> products;  // FLOP/ns by the type of the operands: "bf16"
  double vectors = 0;                      // FLOP/ns of everything else, in f32
  double launch_ns = 0;                    // the least that a kernel takes
  double link_bytes_per_ns = 0;            // to others of its machine, one way; 0: it is not known
  int processors = 0;  // that compute a tile of a product each (SMs); 0: products are not counted in tiles
  Reach reach{};
  std::vector<TypeTime> types{};  // kernels in each type, where they were measured

  // At most that a kernel which touches so many bytes is served with.
  double bytes_per_ns(double bytes) const;
  // At most for products of this type; 0: it has none.
  double product_flops_per_ns(std::string_view type) const;
  bool is_gpu() const { return processors > 0; }  // of those of data sheets
};

// Described by their data sheets, with what kernels of well-tuned libraries are known to reach.
std::span<const Hardware> known_hardware();
// The one that a device's name ("NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-32GB"), or a text with it, speaks of; null: none.
const Hardware* hardware_of_device(std::string_view name);
// One of those by its id, or a file that `gradloom devices --measure --json` wrote for one device.
// Errors: Errc::usage: neither; Errc::bad_input: the file is something else; Errc::io.
Result<Hardware> find_hardware(const std::string& name_or_path);
// The line that `devices --measure --json` writes. Errc::bad_input.
Result<Hardware> parse_hardware(std::string_view json, const std::string& source);

}  // namespace gradloom
