// The header is parsed as it comes, without a document in memory: a header of 100 MB would become one of more than
// a gigabyte.
#include "engine/base/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/limits.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

using json = nlohmann::json;

constexpr std::int64_t kMostMetadata = 100'000;
constexpr std::string_view kMetadata = "__metadata__";

struct Named {
  DType dtype;
  const char* name;
};
constexpr Named kTypes[] = {
    {DType::f64, "F64"},        {DType::f32, "F32"},
    {DType::f16, "F16"},        {DType::bf16, "BF16"},
    {DType::i64, "I64"},        {DType::i32, "I32"},
    {DType::i16, "I16"},        {DType::i8, "I8"},
    {DType::u64, "U64"},        {DType::u32, "U32"},
    {DType::u16, "U16"},        {DType::u8, "U8"},
    {DType::boolean, "BOOL"},   {DType::f8e4m3fn, "F8_E4M3"},
    {DType::f8e5m2, "F8_E5M2"}, {DType::f8e8m0, "F8_E8M0"},
};

struct Entry {
  std::string name;
  std::optional<DType> dtype;
  std::optional<Shape> shape;
  std::int64_t begin = -1, end = -1;
};

// What the parser meets, as it meets it. False ends the parsing, with the reason in `error`.
class HeaderReader : public nlohmann::json_sax<json> {
 public:
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
  Error error{Errc::bad_input, "has a damaged header"};

  bool start_object(std::size_t /*elements*/) override {
    if (depth_ == 0 || (depth_ == 1 && !in_list_)) {
      ++depth_;
      return true;
    }
    return refuse();
  }
  bool end_object() override {
    --depth_;
    if (depth_ == 1 && !in_metadata_) return complete();
    in_metadata_ = false;
    return true;
  }
  bool key(string_t& text) override {
    if (static_cast<std::int64_t>(text.size()) > Limits().name_bytes)
      return fail({Errc::limit, "has a name of " + std::to_string(text.size()) + " bytes"});
    if (depth_ == 1) return begin_entry(text);
    key_ = text;
    return in_metadata_ || key_ == "dtype" || key_ == "shape" || key_ == "data_offsets" ||
           fail(bad_input(subject() + " has the unknown key '" + escaped(key_) + "'"));
  }
  bool string(string_t& text) override {
    if (depth_ != 2 || in_list_) return refuse();
    if (in_metadata_) {
      if (static_cast<std::int64_t>(metadata.size()) >= kMostMetadata)
        return fail({Errc::limit, "has more than " + std::to_string(kMostMetadata) + " entries of metadata"});
      return metadata.emplace(key_, text).second ||
             fail(bad_input("has the metadata '" + escaped(key_) + "' twice"));
    }
    if (key_ != "dtype" || entries.back().dtype) return refuse();
    for (const Named& known : kTypes)
      if (text == known.name) entries.back().dtype = known.dtype;
    return entries.back().dtype.has_value() || fail(bad_input(subject() + " has the element type '" +
                                                              escaped(text) + "', which is not supported"));
  }
  bool start_array(std::size_t /*elements*/) override {
    if (depth_ != 2 || in_metadata_ || in_list_ || key_ == "dtype") return refuse();
    if (key_ == "shape" ? entries.back().shape.has_value() : entries.back().end >= 0) return refuse();
    in_list_ = true;
    list_.clear();
    return true;
  }
  bool end_array() override {
    in_list_ = false;
    if (key_ == "shape") {
      entries.back().shape = list_;
      return true;
    }
    if (list_.size() != 2 || list_[0] > list_[1])
      return fail(bad_input(subject() + " needs the places of its first byte and behind its last"));
    entries.back().begin = list_[0];
    entries.back().end = list_[1];
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (!in_list_) return refuse();
    if (value > static_cast<number_unsigned_t>(INT64_MAX))
      return fail({Errc::limit, subject() + " has a number that does not fit in 63 bits"});
    if (static_cast<std::int64_t>(list_.size()) >= Limits().rank)
      return fail({Errc::limit, subject() + " has more than " + std::to_string(Limits().rank) + " dims"});
    list_.push_back(static_cast<std::int64_t>(value));
    return true;
  }
  bool number_integer(number_integer_t /*value*/) override { return refuse(); }  // a negative one
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return refuse(); }
  bool null() override { return refuse(); }
  bool boolean(bool /*value*/) override { return refuse(); }
  bool binary(binary_t& /*value*/) override { return refuse(); }
  bool parse_error(std::size_t at, const std::string& /*token*/, const json::exception& /*why*/) override {
    return fail(bad_input("has a damaged header near byte " + std::to_string(8 + at)));
  }

 private:
  bool fail(Error why) {
    error = std::move(why);
    return false;
  }
  bool refuse() { return fail(bad_input(subject() + " has a damaged header")); }
  std::string subject() const {
    return entries.empty() || in_metadata_ || depth_ < 2 ? "the file"
                                                         : "tensor '" + escaped(entries.back().name) + "'";
  }
  bool begin_entry(const std::string& name) {
    in_metadata_ = name == kMetadata;
    if (in_metadata_) return metadata.empty() || fail(bad_input("has metadata twice"));
    if (static_cast<std::int64_t>(entries.size()) >= kMostSafetensors)
      return fail({Errc::limit, "has more than " + std::to_string(kMostSafetensors) + " tensors"});
    entries.push_back({name, {}, {}});
    return true;
  }
  bool complete() {
    const Entry& e = entries.back();
    return (e.dtype && e.shape && e.end >= 0) ||
           fail(bad_input("tensor '" + escaped(e.name) + "' lacks dtype, shape or data_offsets"));
  }

  int depth_ = 0;  // objects that are open
  bool in_list_ = false, in_metadata_ = false;
  std::string key_;
  Shape list_;
};

// The places of all tensors follow one another, from the first byte behind the header to the file's last.
Status check_places(std::vector<Entry>& entries, std::int64_t data_bytes) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::int64_t at = 0;
  for (const Entry& e : entries) {
    const std::string tensor = "tensor '" + escaped(e.name) + "'";
    const auto count = checked_element_count(*e.shape, dtype_bytes(*e.dtype));
    if (!count) return with_context(count.error(), tensor);
    const std::int64_t bytes = *count * static_cast<std::int64_t>(dtype_bytes(*e.dtype));
    if (bytes != e.end - e.begin)
      return bad_input(tensor + " is " + to_string(Type{*e.dtype, *e.shape}) + " and needs " +
                       std::to_string(bytes) + " bytes, but has " + std::to_string(e.end - e.begin));
    if (e.begin != at)
      return bad_input(tensor + (e.begin < at ? " overlaps the one before it" : " leaves a hole before it"));
    if (e.end > data_bytes)
      return bad_input("truncated: " + tensor + " ends at byte " + std::to_string(e.end) +
                       " of the data, which have " + std::to_string(data_bytes));
    at = e.end;
  }
  if (at != data_bytes)
    return bad_input(std::to_string(data_bytes - at) + " bytes at its end belong to no tensor");
  return {};
}

Result<std::string> read_header(const InputFile& file) {
  unsigned char length[8];
  if (file.size() < 8) return bad_input("not a safetensors file: shorter than 8 bytes");
  TRY(file.read_unchanged(0, length, 8));
  std::uint64_t bytes = 0;
  for (int i = 8; i-- > 0;) bytes = bytes << 8 | length[i];
  if (bytes > static_cast<std::uint64_t>(file.size() - 8))
    return bad_input("not a safetensors file, or truncated: its header would end behind it");
  if (bytes > static_cast<std::uint64_t>(kMostSafetensorsHeaderBytes))
    return Error{Errc::limit, "its header is longer than the format's limit of " +
                                  std::to_string(kMostSafetensorsHeaderBytes) + " bytes"};
  std::string header(bytes, '\0');
  TRY(file.read_unchanged(8, header.data(), static_cast<std::int64_t>(bytes)));
  if (header.empty() || header[0] != '{')
    return bad_input("not a safetensors file: its header is no JSON object");
  return header;
}

// A byte that is neither 0 nor 1 is no boolean to a kernel.
Result<Tensor> booleans(const Tensor& stored) {
  if (static_cast<std::int64_t>(stored.bytes()) > memory_budget_bytes())
    return Error{Errc::limit, "does not fit in memory"};
  Tensor values = TRY(stored.loaded());
  auto* const bytes = values.mutable_as<std::uint8_t>();
  for (std::int64_t i = 0; i < values.count(); ++i) bytes[i] = bytes[i] != 0 ? 1 : 0;
  return values;
}

Result<Safetensors> read(const std::shared_ptr<const InputFile>& file) {
  const std::string header = TRY(read_header(*file));
  HeaderReader reader;
  if (!json::sax_parse(header, &reader)) return reader.error;
  const std::int64_t start = 8 + static_cast<std::int64_t>(header.size());
  TRY(check_places(reader.entries, file->size() - start));
  Safetensors out;
  out.metadata = std::move(reader.metadata);
  for (Entry& e : reader.entries) {
    Tensor tensor = Tensor::in_file({*e.dtype, std::move(*e.shape)}, file, start + e.begin);
    if (e.dtype == DType::boolean) {
      auto values = booleans(tensor);
      if (!values) return with_context(values.error(), "tensor '" + escaped(e.name) + "'");
      tensor = std::move(values).value();
    }
    if (!out.tensors.emplace(std::move(e.name), std::move(tensor)).second)
      return bad_input("has two tensors of one name");
  }
  return out;
}

Result<std::string> quoted(const std::string& text) {
  std::string in_quotes = json(text).dump(-1, ' ', false, json::error_handler_t::replace);
  if (json::parse(in_quotes) != json(text)) return bad_input("the name '" + escaped(text) + "' is not UTF-8");
  return in_quotes;
}

using Item = std::pair<const std::string, Tensor>;

Result<std::string> header_of(const std::vector<const Item*>& items,
                              const std::map<std::string, std::string>& metadata) {
  std::string text;
  for (const auto& [key, value] : metadata)
    text += (text.empty() ? "{" : ",") + TRY(quoted(key)) + ":" + TRY(quoted(value));
  if (!text.empty()) text = "\"" + std::string(kMetadata) + "\":" + text + "}";
  std::size_t at = 0;
  for (const Item* item : items) {
    const Type type{safetensors_type(item->second.dtype()), item->second.shape()};
    const char* name = "";
    for (const Named& known : kTypes)
      if (known.dtype == type.dtype) name = known.name;
    text += (text.empty() ? "" : ",") + TRY(quoted(item->first)) + ":{\"dtype\":\"" + name +
            "\",\"shape\":" + json(type.shape).dump() + ",\"data_offsets\":[" + std::to_string(at) + "," +
            std::to_string(at + byte_size(type)) + "]}";
    at += byte_size(type);
  }
  text = "{" + text + "}";
  text.append((8 - text.size() % 8) % 8, ' ');  // so that elements are aligned where the file is mapped
  std::string length;
  for (int i = 0; i < 8; ++i) length.push_back(static_cast<char>(text.size() >> (8 * i) & 0xff));
  return length + text;
}

}  // namespace

DType safetensors_type(DType dtype) {
  for (const Named& known : kTypes)
    if (known.dtype == dtype) return dtype;
  if (dtype == DType::i4 || dtype == DType::i2) return DType::i8;
  if (dtype == DType::u4 || dtype == DType::u2) return DType::u8;
  return DType::f32;
}

Result<Safetensors> read_safetensors(const std::shared_ptr<const InputFile>& file,
                                     const std::string& called) {
  auto contents = read(file);
  if (!contents) return with_context(contents.error(), escaped(called));
  return contents;
}

Result<Safetensors> read_safetensors(const std::string& path) {
  auto file = std::make_shared<const InputFile>(TRY(InputFile::open(path)));
  return read_safetensors(file, path);
}

Status write_safetensors(const SafetensorsSink& sink, const Safetensors& contents) {
  std::vector<const Item*> items;
  for (const Item& item : contents.tensors) items.push_back(&item);
  std::stable_sort(items.begin(), items.end(), [](const Item* a, const Item* b) {
    return dtype_bytes(safetensors_type(a->second.dtype())) >
           dtype_bytes(safetensors_type(b->second.dtype()));
  });
  TRY(sink(TRY(header_of(items, contents.metadata))));
  for (const Item* item : items) {
    const Tensor& tensor = item->second;
    const DType type = safetensors_type(tensor.dtype());
    const Tensor written = type == tensor.dtype() ? tensor : TRY(tensor.loaded()).cast(type);
    TRY(written.visit([&](const std::byte* piece, std::size_t, std::size_t bytes) -> Result<bool> {
      TRY(sink({reinterpret_cast<const char*>(piece), bytes}));
      return true;
    }));
  }
  return {};
}

Status write_safetensors(const std::string& path, const Safetensors& contents) {
  AtomicFile file = TRY(AtomicFile::create(path));
  TRY(write_safetensors([&](std::string_view piece) { return file.write(piece); }, contents));
  return file.commit();
}

}  // namespace gradloom
