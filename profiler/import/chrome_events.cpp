#include "profiler/import/chrome_events.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <istream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "engine/base/text.h"
#include "profiler/import/text_stream.h"

namespace gradloom {

std::int32_t TextTable::add(const std::string& text) {
  const auto [at, fresh] = index_.try_emplace(text, static_cast<std::int32_t>(texts_.size()));
  if (fresh) {
    texts_.push_back(&at->first);
    bytes_ += text.size();
  }
  return at->second;
}

namespace {

using json = nlohmann::json;
using Kind = ChromeEvent::Kind;

constexpr std::int64_t kNoTime = std::numeric_limits<std::int64_t>::min();
constexpr int kDeepest = 64;
constexpr std::size_t kMostInputs = 16, kMostDims = 8, kMostFacts = 64, kMostThreads = 100'000,
                      kMostThreadName = 64;
constexpr double kFarthestUs = 4e15;  // of an epoch in microseconds: the year 2096

// Microseconds as written, to the nanosecond: a double of an epoch's microseconds has 0.25 of them.
std::int64_t ns_of_digits(std::string_view text) {
  std::int64_t ns = 0;
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  int decimals = -1;
  for (const char c : text) {
    if (c == '.') {
      decimals = 0;
    } else if (c < '0' || c > '9') {
      return kNoTime;  // an exponent
    } else if (decimals < 3) {
      ns = ns * 10 + (c - '0');
      if (decimals >= 0) ++decimals;
    }
  }
  for (decimals = std::max(decimals, 0); decimals < 3; ++decimals) ns *= 10;
  return negative ? -ns : ns;
}

// A number as any of the parser's three kinds.
struct Number {
  double value = 0;
  std::int64_t integer = -1;  // -1: it is none, or larger
  std::int64_t ns = kNoTime;  // of so many microseconds
};

Number number_of(std::int64_t value) {
  Number n{static_cast<double>(value), value};
  if (std::abs(n.value) <= kFarthestUs) n.ns = value * 1000;
  return n;
}

Number number_of(double value, std::string_view digits) {
  Number n{value};
  if (!(std::abs(value) <= kFarthestUs)) return n;
  if (value == std::floor(value)) n.integer = static_cast<std::int64_t>(value);
  n.ns = ns_of_digits(digits);
  if (n.ns == kNoTime) n.ns = std::llround(value * 1000);
  return n;
}

struct KindName {
  std::string_view category;
  Kind kind;
};
constexpr KindName kKinds[] = {
    {"cpu_op", Kind::op},
    {"Operator", Kind::op},  // capitals: PyTorch 1.8 to 1.12
    {"user_annotation", Kind::annotation},
    {"python_function", Kind::module},
    {"cuda_runtime", Kind::runtime},
    {"cuda_driver", Kind::runtime},
    {"hip_runtime", Kind::runtime},
    {"Runtime", Kind::runtime},
    {"kernel", Kind::kernel},
    {"Kernel", Kind::kernel},
    {"gpu_memcpy", Kind::copy},
    {"Memcpy", Kind::copy},
    {"gpu_memset", Kind::fill},
    {"Memset", Kind::fill},
    {"Node", Kind::node},
    {"Session", Kind::session},
};

struct TypeName {
  std::string_view foreign, ours;
};
constexpr TypeName kTypes[] = {
    {"float", "f32"},
    {"double", "f64"},
    {"c10::Half", "f16"},
    {"c10::BFloat16", "bf16"},
    {"long int", "i64"},
    {"long", "i64"},
    {"int64", "i64"},
    {"int", "i32"},
    {"int32", "i32"},
    {"bool", "bool"},
    {"float16", "f16"},
    {"bfloat16", "bf16"},
    {"unsigned char", "u8"},
    {"uint8", "u8"},
    {"int8", "i8"},
    {"signed char", "i8"},
    {"c10::Float8_e4m3fn", "f8e4m3fn"},
};

std::string our_type(const std::string& foreign) {
  for (const TypeName& type : kTypes)
    if (foreign == type.foreign) return std::string(type.ours);
  return foreign;
}

// Operands with sizes: [[32, 64], [64], []], and of lists of tensors one level more.
class Shapes {
 public:
  void clear() { *this = Shapes(); }
  void operand() { ++operands_; }
  void open() {
    if (shapes_.size() < kMostInputs)
      shapes_.push_back({operands_, {}});
    else
      cut_ = true;
  }
  void size(std::int64_t value) {
    if (!cut_ && !shapes_.empty() && shapes_.back().second.size() < kMostDims)
      shapes_.back().second.push_back(value);
  }
  void type(const std::string& name) {
    if (types_.size() < kMostInputs) types_.push_back(name.substr(0, 32));
  }
  std::string text() const {  // "f32[32, 64] f32[64]"
    std::string text;
    for (const auto& [operand, sizes] : shapes_) {
      if (sizes.empty()) continue;
      const std::string name = operand >= 1 && operand <= types_.size() ? our_type(types_[operand - 1]) : "";
      text += (text.empty() ? "" : " ") + (name == "TensorList" ? "" : name) + "[";
      for (std::size_t d = 0; d < sizes.size(); ++d) text += (d == 0 ? "" : ", ") + std::to_string(sizes[d]);
      text += "]";
    }
    return text + (cut_ ? " .." : "");
  }

 private:
  std::vector<std::pair<std::size_t, std::vector<std::int64_t>>> shapes_;  // each with its operand, from 1
  std::vector<std::string> types_;
  std::size_t operands_ = 0;
  bool cut_ = false;
};

// The group of all ranks, which needs no name.
constexpr std::string_view kWholeGroup = "0";

// Elements as c10 names their types.
double element_bytes(const std::string& type) {
  constexpr std::pair<std::string_view, double> kBytes[] = {
      {"Float", 4}, {"Double", 8}, {"Half", 2}, {"BFloat16", 2}, {"Long", 8},
      {"Int", 4},   {"Short", 2},  {"Char", 1}, {"Byte", 1},     {"Bool", 1}};
  for (const auto& [name, bytes] : kBytes)
    if (name == type) return bytes;
  return 0;
}

// What a rank of `ranks` sends that gives so many elements to a collective, by rings as nccl-tests counts them
// (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md). 0: unknown.
std::int64_t sent_bytes(const std::string& collective, const std::string& type, std::int64_t elements,
                        std::int64_t ranks) {
  const double given = static_cast<double>(std::max<std::int64_t>(elements, 0)) * element_bytes(type);
  const auto n = static_cast<double>(std::max<std::int64_t>(ranks, 1));
  std::string name;
  for (const char c : collective) name += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  const auto is = [&](const char* part) { return name.find(part) != std::string::npos; };
  const double times = is("allreduce") || is("all_reduce")                          ? 2 * (n - 1) / n
                       : is("allgather") || is("all_gather")                        ? n - 1
                       : is("reduce_scatter") || is("all_to_all") || is("alltoall") ? (n - 1) / n
                       : is("recv")                                                 ? 0
                                                                                    : 1;
  constexpr double kMost = 1e15;
  return static_cast<std::int64_t>(std::min(given * times, kMost));
}

// What the parser meets, as it meets it. False ends the parsing, with the reason in `error`.
class EventReader : public nlohmann::json_sax<json> {
 public:
  explicit EventReader(ChromeEvents& events) : out_(events) {}
  std::optional<Error> error;
  bool any_list = false;    // of events
  bool only_facts = false;  // the parsing ends where events begin, without an error

  bool null() override { return true; }
  bool boolean(bool value) override { return take(number_of(static_cast<std::int64_t>(value))); }
  bool number_integer(number_integer_t value) override { return take(number_of(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    return take(value <= INT64_MAX ? number_of(static_cast<std::int64_t>(value))
                                   : Number{static_cast<double>(value)});
  }
  bool number_float(number_float_t value, const string_t& digits) override {
    return take(number_of(value, digits));
  }
  bool binary(binary_t&) override { return true; }
  bool string(string_t& text) override;
  bool key(string_t& text) override;
  bool start_object(std::size_t) override;
  bool end_object() override;
  bool start_array(std::size_t) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    error = Error{Errc::bad_input,
                  "it is no whole JSON: it breaks off or goes wrong at byte " + std::to_string(position)};
    return false;
  }

 private:
  bool limit(const std::string& what) {
    error = Error{Errc::limit, what};
    return false;
  }
  bool deeper() { return ++depth_ <= kDeepest || limit("it nests deeper than 64 levels"); }
  int inside() const { return events_at_ == 0 ? 0 : depth_ - events_at_; }  // 1: in an event, 2: in its args
  bool take(const Number& number);
  void take_field(const Number& number);
  void take_argument(const Number& number);
  void take_fact(const std::string& text);
  void take_provider(const std::string& text);
  bool finish_event();
  Kind legacy_kind() const;
  bool keep();

  ChromeEvents& out_;
  int depth_ = 0, events_at_ = 0;  // events_at_: depth inside the list of events; 0: not there
  std::string root_key_, fact_key_, key_, argument_;
  bool in_args_ = false;
  // Of the device that is being told.
  std::int64_t device_ = -1;
  // Of the event.
  ChromeEvent event_;
  std::string name_, category_, phase_, pid_, tid_, operator_;
  std::int64_t device_type_ = 0, allocated_ = 0;
  // Of an exchange between ranks, as PyTorch tells it beside the kernel.
  std::string collective_, element_type_, group_;
  std::int64_t elements_ = 0, group_size_ = 0;
  std::string provider_;  // of the event before
  Shapes shapes_;
  NameMap<std::int32_t> threads_;
};

bool EventReader::start_object(std::size_t) {
  if (!deeper()) return false;
  if (inside() == 1) {
    event_ = ChromeEvent();
    event_.start_ns = event_.duration_ns = kNoTime;
    for (std::string* text : {&name_, &category_, &phase_, &pid_, &tid_, &operator_}) text->clear();
    for (std::string* text : {&collective_, &element_type_, &group_}) text->clear();
    device_type_ = allocated_ = elements_ = group_size_ = 0;
    shapes_.clear();
  } else if (inside() == 2) {
    in_args_ = key_ == "args";
  } else if (inside() == 4 && in_args_ && argument_ == "input_type_shape") {
    shapes_.operand();
  }
  return true;
}

bool EventReader::end_object() {
  const int at = inside();
  --depth_;
  if (at == 2) in_args_ = false;
  return at != 1 || finish_event();
}

bool EventReader::start_array(std::size_t) {
  if (!deeper()) return false;
  if (events_at_ == 0 && (depth_ == 1 || (depth_ == 2 && root_key_ == "traceEvents"))) {
    events_at_ = depth_;
    any_list = true;
    if (only_facts) return false;
  } else if (in_args_ && inside() >= 4 && (argument_ == "Input Dims" || argument_ == "input_type_shape")) {
    if (inside() == 4) shapes_.operand();
    shapes_.open();
  }
  return true;
}

bool EventReader::end_array() {
  if (depth_ == events_at_) events_at_ = 0;
  --depth_;
  return true;
}

bool EventReader::key(string_t& text) {
  if (depth_ == 1 && events_at_ == 0)
    root_key_ = text;
  else if (inside() == 1)
    key_ = text;
  else if (inside() == 2)
    argument_ = text;
  else if (inside() == 4 && in_args_ && argument_ == "input_type_shape")
    shapes_.type(text);
  else if (events_at_ == 0)
    fact_key_ = text;
  return true;
}

bool EventReader::string(string_t& text) {
  if (text.size() > kMostImportName) text.resize(kMostImportName);
  if (inside() == 1) {
    if (key_ == "name")
      name_ = text;
    else if (key_ == "cat")
      category_ = text;
    else if (key_ == "ph")
      phase_ = text;
    else if (key_ == "pid")
      pid_ = text.substr(0, kMostThreadName);
    else if (key_ == "tid")
      tid_ = text.substr(0, kMostThreadName);
  } else if (inside() == 2 && in_args_) {
    if (argument_ == "op_name")
      operator_ = text;
    else if (argument_ == "provider")
      take_provider(text);
    else if (argument_ == "Collective name")
      collective_ = text;
    else if (argument_ == "dtype")
      element_type_ = text;
    else if (argument_ == "Process Group Name")
      group_ = text.substr(0, kMostThreadName);
  } else if (inside() == 3 && in_args_) {
    if (argument_ == "Input type") shapes_.type(text);
  } else if (events_at_ == 0) {
    take_fact(text);
  }
  return true;
}

bool EventReader::take(const Number& number) {
  if (inside() == 1)
    take_field(number);
  else if (in_args_ && inside() == 2)
    take_argument(number);
  else if (in_args_ && inside() >= 4 && (argument_ == "Input Dims" || argument_ == "input_type_shape"))
    shapes_.size(number.integer);
  else if (events_at_ == 0)
    take_fact(number_text(number.value));
  return true;
}

void EventReader::take_field(const Number& number) {
  if (key_ == "ts")
    event_.start_ns = number.ns;
  else if (key_ == "dur")
    event_.duration_ns = number.ns;
  else if (key_ == "pid")
    pid_ = std::to_string(number.integer);
  else if (key_ == "tid")
    tid_ = std::to_string(number.integer);
}

void EventReader::take_argument(const Number& number) {
  const std::int64_t value = number.integer;
  const auto small = static_cast<std::int32_t>(std::clamp<std::int64_t>(value, -1, INT32_MAX));
  if (argument_ == "Sequence number")
    event_.sequence = value;
  else if (argument_ == "correlation")
    event_.correlation = value;
  else if (argument_ == "External id" || argument_ == "external id")
    event_.external = value;
  else if (argument_ == "device")
    event_.device = small;
  else if (argument_ == "stream")
    event_.stream = small;
  else if (argument_ == "bytes")
    event_.bytes = std::max<std::int64_t>(value, 0);
  else if (argument_ == "Device Type")
    device_type_ = value;
  else if (argument_ == "Total Allocated")
    allocated_ = value;
  else if (argument_ == "In msg nelems")
    elements_ = value;
  else if (argument_ == "Group size")
    group_size_ = value;
}

// What stands beside the events: the machine, as far as PyTorch tells it.
void EventReader::take_fact(const std::string& text) {
  static constexpr std::array<std::string_view, 8> kKept{
      "schemaVersion", "host_name",      "record_shapes",        "with_stack",
      "with_modules",  "profile_memory", "cuda_runtime_version", "cuda_driver_version"};
  if (out_.facts.size() >= kMostFacts) return;
  const std::string value = text.substr(0, 256);
  if (depth_ == 1 && std::find(kKept.begin(), kKept.end(), root_key_) != kKept.end()) {
    out_.facts["trace." + root_key_] = value;
  } else if (depth_ == 2 && root_key_ == "distributedInfo" &&
             (fact_key_ == "rank" || fact_key_ == "world_size" || fact_key_ == "backend")) {
    out_.facts["trace." + fact_key_] = value;
  } else if (depth_ == 3 && root_key_ == "deviceProperties") {
    if (fact_key_ == "id") device_ = std::atoll(value.c_str());
    if (fact_key_ == "name" && out_.devices.size() < kMostFacts) out_.devices.emplace(device_, value);
  }
}

// The different ones that nodes of ONNX Runtime ran on.
void EventReader::take_provider(const std::string& text) {
  if (text == provider_ || text.size() > 64) return;
  provider_ = text;
  std::string& all = out_.facts["trace.providers"];
  if (all.find(text) == std::string::npos && all.size() < 512) all += (all.empty() ? "" : ", ") + text;
}

// Without categories: operators have a namespace, or are nodes of autograd.
Kind EventReader::legacy_kind() const {
  const std::size_t digits = name_.find_last_not_of("0123456789");
  const bool node = digits != std::string::npos && name_.substr(0, digits + 1).ends_with("Backward");
  return name_.find("::") != std::string::npos || node ? Kind::op : Kind::annotation;
}

// Whether it is of a kind that a run can use.
bool EventReader::keep() {
  if (phase_ != "X") return false;
  if (category_.empty()) {
    event_.kind = legacy_kind();
    return true;
  }
  out_.with_categories = true;
  const auto known = std::find_if(std::begin(kKinds), std::end(kKinds),
                                  [&](const KindName& kind) { return kind.category == category_; });
  if (known == std::end(kKinds)) return false;
  event_.kind = known->kind;
  return event_.kind != Kind::module || name_.starts_with("nn.Module: ");
}

bool EventReader::finish_event() {
  if (name_ == "[memory]") {
    std::int64_t& peak = out_.peak_bytes[std::clamp<std::int64_t>(device_type_, 0, 64)];
    peak = std::max(peak, allocated_);
    return true;
  }
  if (!keep()) return true;
  if (event_.start_ns == kNoTime || event_.duration_ns == kNoTime || event_.duration_ns < 0 ||
      name_.empty()) {
    ++out_.unreadable;
    return true;
  }
  if (event_.kind == Kind::node || event_.kind == Kind::session) out_.of_onnxruntime = true;
  if (out_.events.size() >= kMostImportEvents)
    return limit("it has more than " + std::to_string(kMostImportEvents) + " events");
  const auto [thread, fresh] =
      threads_.try_emplace(pid_ + "/" + tid_, static_cast<std::int32_t>(out_.threads.size()));
  if (fresh) out_.threads.push_back(thread->first);
  if (out_.threads.size() > kMostThreads) return limit("it has more than 100000 threads");
  event_.thread = thread->second;
  event_.name = out_.texts.add(name_);
  event_.inputs = out_.texts.add(shapes_.text());
  if (event_.kind == Kind::kernel && !collective_.empty())
    event_.bytes = sent_bytes(collective_, element_type_, elements_, group_size_);
  event_.detail = out_.texts.add(event_.kind == Kind::kernel && group_ != kWholeGroup ? group_ : operator_);
  if (out_.texts.bytes() > kMostImportNameBytes) return limit("its names take more than 256 MiB");
  out_.events.push_back(event_);
  return true;
}

}  // namespace

Result<ChromeEvents> read_chrome_events(const std::string& path, const ImportProgress& progress) {
  const auto stream = TRY(TextStream::open(path, progress));
  ChromeEvents events;
  EventReader reader(events);
  std::istream text(stream.get());
  const bool whole = json::sax_parse(text, &reader);
  if (stream->failure()) return with_context(*stream->failure(), path);
  if (!whole) return with_context(reader.error.value_or(Error{Errc::bad_input, "it is no JSON"}), path);
  if (!reader.any_list)
    return Error{Errc::bad_input,
                 path + ": it has no list of events, as traces of PyTorch and ONNX Runtime do"};
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const ChromeEvent& e : events.events) first = std::min(first, e.start_ns);
  for (ChromeEvent& e : events.events) {
    e.start_ns -= first;
    e.duration_ns = std::min(e.duration_ns, kLongestImport);
  }
  return events;
}

Result<std::map<std::string, std::string>> read_trace_facts(const std::string& path) {
  const auto stream = TRY(TextStream::open(path, {}));
  ChromeEvents events;
  EventReader reader(events);
  reader.only_facts = true;
  std::istream text(stream.get());
  (void)json::sax_parse(text, &reader);
  if (!reader.any_list) events.facts.clear();
  return std::move(events.facts);
}

}  // namespace gradloom
