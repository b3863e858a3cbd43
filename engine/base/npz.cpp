// Zip: local entries {header, name, extra, data}, a central directory that lists them, and an end record that
// finds the directory. Only the directory's sizes and offsets are used; entries must not overlap, so a small
// file cannot stand for many large arrays.
#include "engine/base/npz.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/base/input_file.h"
#include "engine/base/npy_header.h"

namespace gradloom {

namespace {

constexpr std::uint32_t kLocalSignature = 0x04034b50, kCentralSignature = 0x02014b50,
                        kEndSignature = 0x06054b50;
constexpr std::int64_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22;
constexpr std::int64_t kMaxEntries = 65534, kMaxDirectoryBytes = 64 << 20, kMaxHeaderBytes = 65536;
constexpr std::int64_t kMaxInflation = 1040;  // deflate's own bound is 1032
constexpr std::string_view kNpyMagic = "\x93NUMPY";

std::uint64_t little(std::string_view bytes, std::size_t offset, int count) {
  std::uint64_t value = 0;
  for (int i = count; i-- > 0;)
    value = value << 8 | static_cast<unsigned char>(bytes[offset + static_cast<std::size_t>(i)]);
  return value;
}

void put(std::string& bytes, std::uint64_t value, int count) {
  for (int i = 0; i < count; ++i) {
    bytes.push_back(static_cast<char>(value & 0xff));
    value >>= 8;
  }
}

struct Entry {
  std::string name;
  std::int64_t packed_bytes = 0, bytes = 0, offset = 0, data_offset = 0;
  std::uint32_t crc = 0;
  int method = 0;
};

// Sequential plain bytes of an entry, whatever its method; the checksum runs along.
class EntryReader {
 public:
  EntryReader(const InputFile& file, const Entry& entry)
      : file_(file), entry_(entry), position_(entry.data_offset) {}
  EntryReader(const EntryReader&) = delete;
  EntryReader& operator=(const EntryReader&) = delete;
  ~EntryReader() {
    if (inflating_) inflateEnd(&stream_);
  }

  Status start() {
    if (entry_.method == 0) return {};
    inflating_ = inflateInit2(&stream_, -MAX_WBITS) == Z_OK;
    return inflating_ ? Status{} : Status{Error{Errc::limit, "no memory to inflate"}};
  }

  Status read(void* to, std::int64_t count) {
    if (count > entry_.bytes - done_) return bad_input("ends too early");
    char* cursor = static_cast<char*>(to);
    while (count > 0) {
      const std::int64_t chunk = std::min<std::int64_t>(count, 1 << 24);
      TRY(entry_.method == 0 ? read_stored(cursor, chunk) : inflate_into(cursor, chunk));
      crc_ = ::crc32(crc_, reinterpret_cast<const Bytef*>(cursor), static_cast<uInt>(chunk));
      cursor += chunk;
      count -= chunk;
      done_ += chunk;
    }
    return {};
  }

  Status finish() const {
    if (done_ != entry_.bytes)
      return bad_input("has " + std::to_string(entry_.bytes - done_) + " bytes too many");
    if (crc_ != entry_.crc) return bad_input("is damaged: its checksum is wrong");
    return {};
  }

 private:
  Status read_stored(char* to, std::int64_t count) {
    TRY(file_.read_at(position_, to, count));
    position_ += count;
    return {};
  }

  Status inflate_into(char* to, std::int64_t count) {
    stream_.next_out = reinterpret_cast<Bytef*>(to);
    stream_.avail_out = static_cast<uInt>(count);
    const std::int64_t end = entry_.data_offset + entry_.packed_bytes;
    while (stream_.avail_out > 0) {
      if (stream_.avail_in == 0) {
        const std::int64_t chunk =
            std::min<std::int64_t>(end - position_, static_cast<std::int64_t>(sizeof buffer_));
        if (chunk == 0) return bad_input("is damaged: its compressed data ends too early");
        TRY(file_.read_at(position_, buffer_, chunk));
        position_ += chunk;
        stream_.next_in = buffer_;
        stream_.avail_in = static_cast<uInt>(chunk);
      }
      const int result = ::inflate(&stream_, Z_NO_FLUSH);
      if (result == Z_STREAM_END && stream_.avail_out > 0)
        return bad_input("is damaged: its compressed data ends too early");
      if (result != Z_OK && result != Z_STREAM_END) return bad_input("is damaged: it cannot be inflated");
    }
    return {};
  }

  const InputFile& file_;
  const Entry& entry_;
  std::int64_t position_, done_ = 0;
  uLong crc_ = 0;
  z_stream stream_{};
  bool inflating_ = false;
  Bytef buffer_[1 << 16];
};

struct ArrayHeader {
  Type type;
  std::int64_t header_bytes = 0, data_bytes = 0;
};

// The header at the reader's position of an array of `bytes` in total.
template <class Read>
Result<ArrayHeader> read_array_header(std::int64_t bytes, const Read& read) {
  std::string head(10, '\0');
  if (bytes < 10) return bad_input("is not an array: too short");
  TRY(read(head.data(), 10));
  if (head.compare(0, kNpyMagic.size(), kNpyMagic) != 0) return bad_input("is not a NumPy array");
  const int major = static_cast<unsigned char>(head[6]);
  if (major < 1 || major > 3)
    return bad_input("has the unknown array format version " + std::to_string(major));
  std::int64_t header_bytes = static_cast<std::int64_t>(little(head, 8, 2));
  std::int64_t start = 10;
  if (major > 1) {
    std::string high(2, '\0');
    TRY(read(high.data(), 2));
    header_bytes |= static_cast<std::int64_t>(little(high, 0, 2)) << 16;
    start = 12;
  }
  if (header_bytes > kMaxHeaderBytes || header_bytes > bytes - start)
    return bad_input("has a header that is too long");
  std::string header(static_cast<std::size_t>(header_bytes), '\0');
  TRY(read(header.data(), header_bytes));
  ArrayHeader array{TRY(parse_npy_header(header)), start + header_bytes, 0};
  const std::int64_t count = TRY(checked_element_count(array.type.shape, dtype_bytes(array.type.dtype)));
  array.data_bytes = count * static_cast<std::int64_t>(dtype_bytes(array.type.dtype));
  if (array.data_bytes != bytes - array.header_bytes) {
    return bad_input("is " + to_string(array.type) + " and needs " + std::to_string(array.data_bytes) +
                     " bytes, but has " + std::to_string(bytes - array.header_bytes));
  }
  return array;
}

// Reads the array that starts at the reader's position: `bytes` in total, header included.
// Not wanted: without storage.
template <class Read>
Result<Tensor> read_array(const std::string& name, const NpzWanted& wanted, std::int64_t bytes,
                          std::int64_t& budget_bytes, const Read& read) {
  const ArrayHeader array = TRY(read_array_header(bytes, read));
  if (wanted != nullptr && !TRY(wanted(name, array.type))) return Tensor();
  if (array.data_bytes > budget_bytes) return Error{Errc::limit, "does not fit in memory"};
  budget_bytes -= array.data_bytes;
  Tensor tensor(array.type.dtype, array.type.shape);
  TRY(read(tensor.mutable_data(), array.data_bytes));
  if (array.type.dtype == DType::boolean) {
    std::uint8_t* values = tensor.mutable_as<std::uint8_t>();
    for (std::int64_t i = 0, count = tensor.count(); i < count; ++i) values[i] = values[i] != 0 ? 1 : 0;
  }
  return tensor;
}

// The end record, searched backwards over the longest comment it may have.
Result<std::string> read_directory(const InputFile& file, std::int64_t* entries, std::int64_t* offset) {
  if (file.size() < kEndBytes) return bad_input("not a zip archive");
  const std::int64_t tail_bytes = std::min<std::int64_t>(file.size(), kEndBytes + 65535);
  std::string tail(static_cast<std::size_t>(tail_bytes), '\0');
  TRY(file.read_at(file.size() - tail_bytes, tail.data(), tail_bytes));
  std::int64_t at = tail_bytes - kEndBytes;
  while (at >= 0 && (little(tail, static_cast<std::size_t>(at), 4) != kEndSignature ||
                     static_cast<std::int64_t>(little(tail, static_cast<std::size_t>(at) + 20, 2)) !=
                         tail_bytes - kEndBytes - at)) {
    --at;
  }
  if (at < 0) return bad_input("not a zip archive, or truncated: it has no end record");
  const auto field = [&](std::size_t where, int count) {
    return static_cast<std::int64_t>(little(tail, static_cast<std::size_t>(at) + where, count));
  };
  *entries = field(10, 2);
  const std::int64_t directory_bytes = field(12, 4);
  *offset = field(16, 4);
  if (field(4, 2) != 0 || field(6, 2) != 0 || field(8, 2) != *entries)
    return bad_input("archives of several disks are not supported");
  if (*entries > kMaxEntries || *offset == 0xffffffff)
    return Error{Errc::limit, "archives over 4 GiB or of more than 65534 arrays are not supported"};
  if (directory_bytes > kMaxDirectoryBytes) return Error{Errc::limit, "the archive's directory is too long"};
  if (*offset + directory_bytes > file.size() - tail_bytes + at)
    return bad_input("the archive's directory lies outside it");
  std::string directory(static_cast<std::size_t>(directory_bytes), '\0');
  TRY(file.read_at(*offset, directory.data(), directory_bytes));
  return directory;
}

// Sizes of an entry over 4 GiB stand in extra field 1, in the order of the fields that overflowed.
Status read_zip64(std::string_view extra, Entry& entry) {
  constexpr std::int64_t kMissing = 0xffffffff;
  if (entry.bytes != kMissing && entry.packed_bytes != kMissing && entry.offset != kMissing) return {};
  for (std::size_t at = 0; at + 4 <= extra.size();) {
    const std::uint64_t id = little(extra, at, 2);
    const auto length = static_cast<std::size_t>(little(extra, at + 2, 2));
    if (length > extra.size() - at - 4) break;
    std::size_t cursor = at + 4, stop = cursor + length;
    if (id == 1) {
      for (std::int64_t* value : {&entry.bytes, &entry.packed_bytes, &entry.offset}) {
        if (*value != kMissing) continue;
        if (stop - cursor < 8) return bad_input("has a damaged size");
        *value = static_cast<std::int64_t>(little(extra, cursor, 8));
        if (*value < 0) return bad_input("has a damaged size");
        cursor += 8;
      }
      return {};
    }
    at = stop;
  }
  return bad_input("has a damaged size");
}

Result<std::vector<Entry>> read_entries(const InputFile& file) {
  std::int64_t count = 0, directory_offset = 0;
  const std::string directory = TRY(read_directory(file, &count, &directory_offset));
  std::vector<Entry> entries;
  std::size_t at = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (directory.size() - at < static_cast<std::size_t>(kCentralBytes) ||
        little(directory, at, 4) != kCentralSignature) {
      return bad_input("the archive's directory is damaged");
    }
    const auto field = [&](std::size_t where, int bytes) {
      return static_cast<std::int64_t>(little(directory, at + where, bytes));
    };
    const auto name_bytes = static_cast<std::size_t>(field(28, 2)),
               extra_bytes = static_cast<std::size_t>(field(30, 2));
    const std::size_t whole = static_cast<std::size_t>(kCentralBytes) + name_bytes + extra_bytes +
                              static_cast<std::size_t>(field(32, 2));
    if (whole > directory.size() - at) return bad_input("the archive's directory is damaged");
    Entry entry;
    entry.name = directory.substr(at + kCentralBytes, name_bytes);
    entry.method = static_cast<int>(field(10, 2));
    entry.crc = static_cast<std::uint32_t>(field(16, 4));
    entry.packed_bytes = field(20, 4);
    entry.bytes = field(24, 4);
    entry.offset = field(42, 4);
    const std::string owner = "array '" + escaped(entry.name) + "'";
    if ((field(8, 2) & 1) != 0) return bad_input(owner + " is encrypted");
    if (entry.method != 0 && entry.method != Z_DEFLATED)
      return bad_input(owner + " is compressed by method " + std::to_string(entry.method) +
                       ", which is not supported");
    if (Status s = read_zip64(
            std::string_view(directory).substr(at + kCentralBytes + name_bytes, extra_bytes), entry);
        !s.ok())
      return with_context(s.error(), owner);
    if (entry.method == 0 && entry.bytes != entry.packed_bytes) return bad_input(owner + " has two sizes");
    if (entry.bytes / kMaxInflation > entry.packed_bytes) return bad_input(owner + " cannot be that large");
    if (entry.offset > directory_offset - kLocalBytes || entry.packed_bytes > directory_offset)
      return bad_input(owner + " lies outside the archive");
    entries.push_back(std::move(entry));
    at += whole;
  }
  return entries;
}

// Finds where each entry's data begins and that no two share bytes.
Status locate_entries(const InputFile& file, std::vector<Entry>& entries) {
  std::vector<Entry*> by_offset;
  for (Entry& entry : entries) by_offset.push_back(&entry);
  std::sort(by_offset.begin(), by_offset.end(),
            [](const Entry* a, const Entry* b) { return a->offset < b->offset; });
  std::int64_t end = 0;
  for (Entry* entry : by_offset) {
    const std::string owner = "array '" + escaped(entry->name) + "'";
    std::string local(kLocalBytes, '\0');
    TRY(file.read_at(entry->offset, local.data(), kLocalBytes));
    if (little(local, 0, 4) != kLocalSignature) return bad_input(owner + " is damaged: it has no header");
    if (entry->offset < end) return bad_input(owner + " overlaps another array");
    entry->data_offset =
        entry->offset + kLocalBytes + static_cast<std::int64_t>(little(local, 26, 2) + little(local, 28, 2));
    if (entry->packed_bytes > file.size() - entry->data_offset)
      return bad_input(owner + " lies outside the archive");
    end = entry->data_offset + entry->packed_bytes;
  }
  return {};
}

Result<std::map<std::string, Tensor>> read_archive(const InputFile& file, const NpzWanted& wanted) {
  std::vector<Entry> entries = TRY(read_entries(file));
  TRY(locate_entries(file, entries));
  std::map<std::string, Tensor> arrays;
  std::int64_t budget_bytes = memory_budget_bytes();
  for (const Entry& entry : entries) {
    const std::string owner = "array '" + escaped(entry.name) + "'";
    std::string name = entry.name;
    if (name.size() > 4 && name.compare(name.size() - 4, 4, ".npy") == 0) name.resize(name.size() - 4);
    if (arrays.count(name) != 0) return bad_input(owner + " occurs twice");
    EntryReader reader(file, entry);
    TRY(reader.start());
    Result<Tensor> tensor = read_array(name, wanted, entry.bytes, budget_bytes,
                                       [&](void* to, std::int64_t n) { return reader.read(to, n); });
    if (!tensor.ok()) return with_context(tensor.error(), owner);
    if (Status s = tensor->defined() ? reader.finish() : Status{}; !s.ok())
      return with_context(s.error(), owner);
    arrays[name] = std::move(*tensor);
  }
  return arrays;
}

std::string stem_of(const std::string& path) {
  std::string name = path.substr(path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1);
  if (name.size() > 4 && name.compare(name.size() - 4, 4, ".npy") == 0) name.resize(name.size() - 4);
  return name;
}

Result<std::map<std::string, Tensor>> read_any(const InputFile& file, const std::string& path,
                                               const NpzWanted& wanted) {
  std::string magic(kNpyMagic.size(), '\0');
  if (file.size() < static_cast<std::int64_t>(magic.size()))
    return bad_input("neither a zip archive nor a NumPy array");
  TRY(file.read_at(0, magic.data(), static_cast<std::int64_t>(magic.size())));
  if (magic != kNpyMagic) return read_archive(file, wanted);
  std::int64_t position = 0, budget_bytes = memory_budget_bytes();
  Tensor tensor =
      TRY(read_array(stem_of(path), wanted, file.size(), budget_bytes, [&](void* to, std::int64_t n) {
        position += n;
        return file.read_at(position - n, to, n);
      }));
  return std::map<std::string, Tensor>{{stem_of(path), std::move(tensor)}};
}

// Fields that the local header and the directory share: version, flags (bit 11: UTF-8 names), method,
// 1980-01-01, checksum, sizes.
std::string shared_fields(const std::string& name, std::uint32_t crc, std::size_t bytes) {
  std::string fields;
  put(fields, 20, 2);
  put(fields, 1 << 11, 2);
  put(fields, 0, 2);
  put(fields, 0, 2);
  put(fields, 1 << 5 | 1, 2);
  put(fields, crc, 4);
  put(fields, bytes, 4);
  put(fields, bytes, 4);
  put(fields, name.size(), 2);
  put(fields, 0, 2);
  return fields;
}

}  // namespace

namespace {

DType numpy_type(DType type) {
  if (type == DType::bf16 || is_small_float(type)) return DType::f32;
  if (type == DType::i4 || type == DType::i2) return DType::i8;
  return is_small_int(type) ? DType::u8 : type;
}

}  // namespace

Result<std::map<std::string, Tensor>> read_npz(const std::string& path, const NpzWanted& wanted) {
  const InputFile file = TRY(InputFile::open(path));
  Result<std::map<std::string, Tensor>> arrays = read_any(file, path, wanted);
  if (!arrays.ok()) return with_context(arrays.error(), escaped(path));
  return arrays;
}

Result<Tensor> open_npy_file(const std::string& path) {
  const auto file = std::make_shared<const InputFile>(TRY(InputFile::open(path)));
  std::int64_t position = 0;
  const auto header = read_array_header(file->size(), [&](void* to, std::int64_t n) {
    position += n;
    return file->read_at(position - n, to, n);
  });
  if (!header) return with_context(header.error(), escaped(path));
  if (header->type.dtype == DType::boolean)
    return Error{Errc::bad_input, escaped(path) + ": booleans cannot stay in a file: use npz:"};
  return Tensor::in_file(header->type, file, header->header_bytes);
}

// Piece by piece: an archive may be as large as memory.
Status write_npz(const std::string& path, const std::map<std::string, Tensor>& arrays) {
  constexpr auto kMaxBytes = static_cast<std::size_t>(kMostNpzBytes);
  const Error too_large{Errc::limit, escaped(path) + ": the arrays would be over 4 GiB or more than 65534"};
  if (arrays.size() > static_cast<std::size_t>(kMaxEntries)) return too_large;
  AtomicFile file = TRY(AtomicFile::create(path));
  std::string directory;
  std::size_t offset = 0;
  for (const auto& [key, array] : arrays) {
    const std::string name = key + ".npy";
    if (!array.defined()) return Error{Errc::bug, "array '" + escaped(key) + "' has no contents"};
    if (name.size() > 65535)
      return Error{Errc::limit, "array '" + escaped(key.substr(0, 80)) + "...' has too long a name"};
    const Tensor plain = array.cast(numpy_type(array.dtype()));
    const std::string header = npy_header(plain.type());
    const std::string_view data(static_cast<const char*>(plain.data()), plain.bytes());
    if (data.size() > kMaxBytes ||
        offset + directory.size() + header.size() + data.size() > kMaxBytes - 2 * name.size() - 256) {
      return too_large;
    }
    uLong crc = ::crc32(0, reinterpret_cast<const Bytef*>(header.data()), static_cast<uInt>(header.size()));
    crc = ::crc32(crc, reinterpret_cast<const Bytef*>(data.data()), static_cast<uInt>(data.size()));
    const std::string fields =
        shared_fields(name, static_cast<std::uint32_t>(crc), header.size() + data.size());
    put(directory, kCentralSignature, 4);
    put(directory, 20, 2);
    directory += fields;
    put(directory, 0, 10);  // comment length, disk, attributes
    put(directory, offset, 4);
    directory += name;
    std::string local;
    put(local, kLocalSignature, 4);
    local += fields + name + header;
    TRY(file.write(local));
    TRY(file.write(data));
    offset += local.size() + data.size();
  }
  std::string end;
  put(end, kEndSignature, 4);
  put(end, 0, 4);
  put(end, arrays.size(), 2);
  put(end, arrays.size(), 2);
  put(end, directory.size(), 4);
  put(end, offset, 4);
  put(end, 0, 2);
  TRY(file.write(directory));
  TRY(file.write(end));
  return file.commit();
}

}  // namespace gradloom
