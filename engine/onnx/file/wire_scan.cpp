// Protobuf wire format: a message is a run of (field number << 3 | wire type) keys with payloads; wire type 0
// varint, 1 eight bytes, 2 length-delimited (strings, messages, packed numbers), 5 four bytes; 3 and 4
// (groups) do not occur in ONNX.
#include "engine/onnx/file/wire_scan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <utility>

#include "engine/onnx/file/contents_in_file.h"

namespace gradloom {

namespace {

enum Message : std::uint8_t {
  kModel,
  kGraph,
  kNode,
  kAttribute,
  kTensor,
  kSegment,
  kSparse,
  kValueInfo,
  kTypeProto,
  kTensorType,
  kSequence,
  kMap,
  kOptional,
  kShape,
  kDim,
  kFunction,
  kOpset,
  kPair,
  kAnnotation,
  kTraining,
  kForeign,
  kMessageCount,
};

constexpr const char* kMessageNames[kMessageCount] = {
    "ModelProto",        "GraphProto",         "NodeProto",
    "AttributeProto",    "TensorProto",        "Segment",
    "SparseTensorProto", "ValueInfoProto",     "TypeProto",
    "Tensor type",       "Sequence type",      "Map type",
    "Optional type",     "TensorShapeProto",   "Dimension",
    "FunctionProto",     "OperatorSetIdProto", "StringStringEntryProto",
    "TensorAnnotation",  "TrainingInfoProto",  "newer message"};

enum Payload : std::uint8_t { kNumber, kFixed4, kFixed8, kName, kBytes, kChild };

struct Field {
  Message parent;
  std::uint8_t number;
  Payload payload;
  bool repeated;
  Message child = kForeign;
};

// kName: limited by Limits::name_bytes. kForeign children belong to newer releases;
// they are counted, not looked into.
constexpr Field kFields[] = {
    {kModel, 1, kNumber, false},
    {kModel, 2, kBytes, false},
    {kModel, 3, kBytes, false},
    {kModel, 4, kBytes, false},
    {kModel, 5, kNumber, false},
    {kModel, 6, kBytes, false},
    {kModel, 7, kChild, false, kGraph},
    {kModel, 8, kChild, true, kOpset},
    {kModel, 14, kChild, true, kPair},
    {kModel, 20, kChild, true, kTraining},
    {kModel, 25, kChild, true, kFunction},
    {kModel, 26, kChild, true, kForeign},
    {kGraph, 1, kChild, true, kNode},
    {kGraph, 2, kName, false},
    {kGraph, 5, kChild, true, kTensor},
    {kGraph, 10, kBytes, false},
    {kGraph, 11, kChild, true, kValueInfo},
    {kGraph, 12, kChild, true, kValueInfo},
    {kGraph, 13, kChild, true, kValueInfo},
    {kGraph, 14, kChild, true, kAnnotation},
    {kGraph, 15, kChild, true, kSparse},
    {kGraph, 16, kChild, true, kPair},
    {kNode, 1, kName, true},
    {kNode, 2, kName, true},
    {kNode, 3, kName, false},
    {kNode, 4, kName, false},
    {kNode, 5, kChild, true, kAttribute},
    {kNode, 6, kBytes, false},
    {kNode, 7, kName, false},
    {kNode, 8, kName, false},
    {kNode, 9, kChild, true, kPair},
    {kNode, 10, kChild, true, kForeign},
    {kAttribute, 1, kName, false},
    {kAttribute, 2, kFixed4, false},
    {kAttribute, 3, kNumber, false},
    {kAttribute, 4, kBytes, false},
    {kAttribute, 5, kChild, false, kTensor},
    {kAttribute, 6, kChild, false, kGraph},
    {kAttribute, 7, kFixed4, true},
    {kAttribute, 8, kNumber, true},
    {kAttribute, 9, kBytes, true},
    {kAttribute, 10, kChild, true, kTensor},
    {kAttribute, 11, kChild, true, kGraph},
    {kAttribute, 13, kBytes, false},
    {kAttribute, 14, kChild, false, kTypeProto},
    {kAttribute, 15, kChild, true, kTypeProto},
    {kAttribute, 20, kNumber, false},
    {kAttribute, 21, kName, false},
    {kAttribute, 22, kChild, false, kSparse},
    {kAttribute, 23, kChild, true, kSparse},
    {kTensor, 1, kNumber, true},
    {kTensor, 2, kNumber, false},
    {kTensor, 3, kChild, false, kSegment},
    {kTensor, 4, kFixed4, true},
    {kTensor, 5, kNumber, true},
    {kTensor, 6, kBytes, true},
    {kTensor, 7, kNumber, true},
    {kTensor, 8, kName, false},
    {kTensor, 9, kBytes, false},
    {kTensor, 10, kFixed8, true},
    {kTensor, 11, kNumber, true},
    {kTensor, 12, kBytes, false},
    {kTensor, 13, kChild, true, kPair},
    {kTensor, 14, kNumber, false},
    {kTensor, 16, kChild, true, kPair},
    {kSegment, 1, kNumber, false},
    {kSegment, 2, kNumber, false},
    {kSparse, 1, kChild, false, kTensor},
    {kSparse, 2, kChild, false, kTensor},
    {kSparse, 3, kNumber, true},
    {kValueInfo, 1, kName, false},
    {kValueInfo, 2, kChild, false, kTypeProto},
    {kValueInfo, 3, kBytes, false},
    {kValueInfo, 4, kChild, true, kPair},
    {kTypeProto, 1, kChild, false, kTensorType},
    {kTypeProto, 4, kChild, false, kSequence},
    {kTypeProto, 5, kChild, false, kMap},
    {kTypeProto, 6, kName, false},
    {kTypeProto, 7, kChild, false, kForeign},
    {kTypeProto, 8, kChild, false, kTensorType},
    {kTypeProto, 9, kChild, false, kOptional},
    {kTensorType, 1, kNumber, false},
    {kTensorType, 2, kChild, false, kShape},
    {kSequence, 1, kChild, false, kTypeProto},
    {kOptional, 1, kChild, false, kTypeProto},
    {kMap, 1, kNumber, false},
    {kMap, 2, kChild, false, kTypeProto},
    {kShape, 1, kChild, true, kDim},
    {kDim, 1, kNumber, false},
    {kDim, 2, kName, false},
    {kDim, 3, kName, false},
    {kFunction, 1, kName, false},
    {kFunction, 2, kNumber, false},
    {kFunction, 3, kNumber, false},
    {kFunction, 4, kName, true},
    {kFunction, 5, kName, true},
    {kFunction, 6, kName, true},
    {kFunction, 7, kChild, true, kNode},
    {kFunction, 8, kBytes, false},
    {kFunction, 9, kChild, true, kOpset},
    {kFunction, 10, kName, false},
    {kFunction, 11, kChild, true, kAttribute},
    {kFunction, 12, kChild, true, kValueInfo},
    {kFunction, 13, kName, false},
    {kFunction, 14, kChild, true, kPair},
    {kOpset, 1, kName, false},
    {kOpset, 2, kNumber, false},
    {kPair, 1, kBytes, false},
    {kPair, 2, kBytes, false},
    {kAnnotation, 1, kName, false},
    {kAnnotation, 2, kChild, true, kPair},
    {kTraining, 1, kChild, false, kGraph},
    {kTraining, 2, kChild, false, kGraph},
    {kTraining, 3, kChild, true, kPair},
    {kTraining, 4, kChild, true, kPair},
};

// What parts of a file take once they are parsed and in the graph, roughly; an empty message is two bytes in
// the file. Files of real models grow four to ten times, their raw contents left out.
constexpr std::int64_t kNodeBytes = 1000, kMessageBytes = 250, kTextBytes = 56, kNumberBytes = 16;
constexpr std::int64_t kFreeObjectBytes = 144 << 20, kObjectGrowth = 12;

constexpr std::uint8_t kRawData = 9;  // of a TensorProto
constexpr int kMaxField = 32;
struct FieldTable {
  std::array<std::array<std::int16_t, kMaxField>, kMessageCount> row{};
  constexpr FieldTable() {
    for (auto& message : row) {
      for (auto& entry : message) entry = -1;
    }
    std::int16_t i = 0;
    for (const Field& f : kFields) row[f.parent][f.number] = i++;
  }
};
constexpr FieldTable kTable;

constexpr std::uint64_t kLeastLeftBytes = 4096;  // of contents that stay in the file

// A number in exactly as many bytes as another had, which was not smaller.
std::string padded_varint(std::uint64_t value, std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i, value >>= 7)
    text[i] = static_cast<char>((value & 0x7f) | (i + 1 < bytes ? 0x80 : 0));
  return text;
}

class Scanner {
 public:
  Scanner(const WireBlocks& blocks, const Limits& limits, KeptBytes* kept, bool leave_contents)
      : blocks_(blocks),
        size_(static_cast<std::size_t>(blocks.bytes)),
        limits_(limits),
        kept_(kept),
        leave_contents_(leave_contents),
        max_objects_(16 * limits.nodes),
        max_numbers_(std::int64_t{64} << 20) {}

  // Depth counts messages; a level of graph nesting is graph > node > attribute, types nest through two
  // messages a level.
  Status message(Message kind, std::size_t end, std::int64_t depth, std::int64_t graphs) {
    if (depth > 4 * limits_.nesting + 16 || graphs > limits_.nesting) {
      return Error{Errc::limit, "nesting is over the limit of " + std::to_string(limits_.nesting) +
                                    " at byte " + at() + raised_by("nesting")};
    }
    std::uint64_t seen = 0;
    while (position() < end) {
      const std::size_t start = position();
      const std::uint64_t key = TRY(varint(end));
      const std::uint64_t number = key >> 3;
      if (number == 0 || number >= kMaxField || kTable.row[kind][number] < 0) {
        return Error{Errc::bad_input, "not an ONNX file: field " + std::to_string(number) + " at byte " +
                                          std::to_string(start) + " is unknown in " + kMessageNames[kind]};
      }
      const Field& field = kFields[kTable.row[kind][number]];
      const std::uint64_t bit = std::uint64_t{1} << number;
      if (!field.repeated && (seen & bit) != 0) {
        return Error{Errc::bad_input, "field " + std::to_string(number) + " of " + kMessageNames[kind] +
                                          " occurs a second time at byte " + std::to_string(start)};
      }
      seen |= bit;
      TRY(payload(field, static_cast<int>(key & 7), start, end, depth, graphs));
    }
    if (kind == kModel && (seen & (1u << 7)) == 0)
      return Error{Errc::bad_input, "not an ONNX model: it has no graph"};
    return check_choice(kind, seen);
  }

  void finish() { keep_read(); }

  // At the end: contents that stand in the file as they will in memory do not pay for objects.
  Status check_growth() const {
    const auto structure = static_cast<std::int64_t>(size_) - contents_bytes_;
    if (object_bytes_ <= kFreeObjectBytes + kObjectGrowth * structure) return {};
    return Error{Errc::limit, "its " + std::to_string(objects_) + " messages and names and " +
                                  std::to_string(numbers_) +
                                  " listed numbers would take far more memory than the file"};
  }

 private:
  // Of a oneof, protobuf keeps the last field and other readers the first.
  Status check_choice(Message kind, std::uint64_t seen) const {
    constexpr std::uint64_t kDimension = 1u << 1 | 1u << 2;
    constexpr std::uint64_t kType = 1u << 1 | 1u << 4 | 1u << 5 | 1u << 7 | 1u << 8 | 1u << 9;
    const std::uint64_t chosen = kind == kDim ? seen & kDimension : kind == kTypeProto ? seen & kType : 0;
    if (std::popcount(chosen) < 2) return {};
    return Error{Errc::bad_input,
                 std::string(kMessageNames[kind]) + " before byte " + at() + " is given in two ways"};
  }

  std::size_t position() const { return block_start_ + at_; }
  std::string at() const { return std::to_string(position()); }
  Error truncated(std::size_t end) const {
    const char* what = end == size_ ? "truncated: the file ends inside a field at byte "
                                    : "damaged: a field runs over its message at byte ";
    return Error{Errc::bad_input, what + at()};
  }

  // REQUIRES that the position is before the end. Afterwards the next byte is block_[at_].
  Status next_block() {
    if (at_ < block_.size()) return {};
    keep_read();
    block_start_ += block_.size();
    at_ = kept_up_to_ = 0;
    block_ = TRY(blocks_.next());
    return {};
  }

  // ---- what is kept of the bytes ----

  // What was read of the block and is not kept yet.
  void keep_read() {
    if (kept_ != nullptr) kept_->append(block_.substr(kept_up_to_, at_ - kept_up_to_));
    kept_up_to_ = at_;
  }
  // Where the next byte will stand among those that are kept.
  std::size_t kept_position() const { return kept_ == nullptr ? 0 : kept_->size() + (at_ - kept_up_to_); }
  // The length before contents or a message of `length` bytes, from which `left` bytes are left out.
  void shorten(std::size_t kept_at, std::size_t kept_end, std::uint64_t length, std::uint64_t left) {
    keep_read();
    kept_->overwrite(kept_at, padded_varint(length - left, kept_end - kept_at));
  }
  // Contents of `length` bytes stay in the file: of their field an empty one is kept, and where they are.
  Status leave(std::uint64_t length, std::size_t end, std::size_t kept_at) {
    const FileRange range{static_cast<std::int64_t>(position()), static_cast<std::int64_t>(length)};
    shorten(kept_at, kept_position(), length, length);
    kept_->append(wire_of(range));
    left_bytes_ += length - kFileRangeWireBytes;
    TRY(skip(length, end, false));
    kept_up_to_ = at_;
    return {};
  }

  // ---- reading ----

  Result<std::uint64_t> varint(std::size_t end) {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (position() >= end) return truncated(end);
      TRY(next_block());
      const auto byte = static_cast<unsigned char>(block_[at_++]);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << (shift < 64 ? shift : 63);
      if ((byte & 0x80) == 0) return value;
    }
    return Error{Errc::bad_input, "not an ONNX file: a number at byte " + at() + " is too long"};
  }

  Status skip(std::uint64_t count, std::size_t end, bool keep = true) {
    if (count > end - position()) return truncated(end);
    for (std::size_t left = static_cast<std::size_t>(count); left > 0;) {
      TRY(next_block());
      const std::size_t step = std::min(left, block_.size() - at_);
      at_ += step;
      if (!keep) kept_up_to_ = at_;
      left -= step;
    }
    return {};
  }

  Status count_object(const Field& field) {
    if (field.payload == kChild && field.child == kNode && ++nodes_ > limits_.nodes) {
      return Error{Errc::limit, "more than " + std::to_string(limits_.nodes) + " nodes" + raised_by("nodes")};
    }
    if (++objects_ > max_objects_) {
      return Error{Errc::limit,
                   "more than " + std::to_string(max_objects_) + " messages and names" + raised_by("nodes")};
    }
    object_bytes_ += field.payload != kChild ? kTextBytes : field.child == kNode ? kNodeBytes : kMessageBytes;
    return {};
  }

  Status count_numbers(std::uint64_t count) {
    numbers_ += static_cast<std::int64_t>(count);
    object_bytes_ += kNumberBytes * static_cast<std::int64_t>(count);
    if (numbers_ > max_numbers_)
      return Error{Errc::limit, "more than " + std::to_string(max_numbers_) + " listed numbers"};
    return {};
  }

  // What follows of a list whose numbers stand one by one and are small, as far as the block goes: a file may hold many
  // millions. `key`: of the list's field, whose number is below 16.
  Status small_numbers(unsigned char key, std::size_t end) {
    const std::size_t stop = std::min(block_.size(), at_ + (end - position()));
    const std::size_t first = at_;
    while (at_ + 2 <= stop && static_cast<unsigned char>(block_[at_]) == key &&
           (static_cast<unsigned char>(block_[at_ + 1]) & 0x80) == 0)
      at_ += 2;
    return count_numbers((at_ - first) / 2);
  }

  Status payload(const Field& field, int wire, std::size_t start, std::size_t end, std::int64_t depth,
                 std::int64_t graphs) {
    const bool scalar = field.payload == kNumber || field.payload == kFixed4 || field.payload == kFixed8;
    const int expected = field.payload == kNumber   ? 0
                         : field.payload == kFixed4 ? 5
                         : field.payload == kFixed8 ? 1
                                                    : 2;
    const bool packed = scalar && field.repeated && wire == 2;
    if (wire != expected && !packed) {
      return Error{Errc::bad_input, "not an ONNX file: field " + std::to_string(field.number) + " of " +
                                        kMessageNames[field.parent] + " at byte " + std::to_string(start) +
                                        " has wire type " + std::to_string(wire)};
    }
    if (scalar && !packed) {
      TRY(count_numbers(1));
      if (wire == 0) {
        TRY(varint(end));
        return field.repeated ? small_numbers(static_cast<unsigned char>(field.number << 3), end) : Status();
      }
      return skip(wire == 5 ? 4 : 8, end);
    }
    const std::size_t kept_at = kept_position();
    const std::uint64_t length = TRY(varint(end));
    if (length > end - position()) return truncated(end);
    const std::size_t stop = position() + static_cast<std::size_t>(length);
    if (packed) return packed_numbers(field, stop);
    TRY(count_object(field));
    if (field.payload == kName && length > static_cast<std::uint64_t>(limits_.name_bytes)) {
      return Error{Errc::limit, "a name of " + std::to_string(length) + " bytes at byte " + at() +
                                    " is over the limit of " + std::to_string(limits_.name_bytes) +
                                    raised_by("name_bytes")};
    }
    if (field.payload == kBytes) contents_bytes_ += static_cast<std::int64_t>(length);
    if (leaving_ && field.parent == kTensor && field.number == kRawData && length >= kLeastLeftBytes)
      return leave(length, end, kept_at);
    if (field.payload != kChild || field.child == kForeign) return skip(length, end);
    const std::size_t kept_end = kept_position();
    const std::uint64_t left_before = left_bytes_;
    // Of initializers alone; not of those that functions and training bring, which are of no use here.
    const bool outside =
        std::exchange(outside_, outside_ || field.child == kFunction || field.child == kTraining);
    leaving_ = leave_contents_ && !outside_ && field.parent == kGraph && field.child == kTensor;
    TRY(message(field.child, stop, depth + 1, graphs + (field.child == kGraph ? 1 : 0)));
    leaving_ = false;
    outside_ = outside;
    if (left_bytes_ > left_before) shorten(kept_at, kept_end, length, left_bytes_ - left_before);
    return {};
  }

  Status packed_numbers(const Field& field, std::size_t stop) {
    const std::size_t begin = position(), length = stop - begin;
    if (field.payload != kNumber) {
      if (length % (field.payload == kFixed4 ? 4 : 8) != 0) {
        return Error{Errc::bad_input,
                     "damaged: a list of numbers at byte " + at() + " has a part of a number"};
      }
      contents_bytes_ += static_cast<std::int64_t>(length);
      return skip(length, stop);  // as large in memory as in the file
    }
    std::uint64_t count = 0;
    bool whole = true;
    while (position() < stop) {
      TRY(next_block());
      for (const std::size_t step_end = at_ + std::min(stop - position(), block_.size() - at_);
           at_ < step_end; ++at_) {
        whole = (static_cast<unsigned char>(block_[at_]) & 0x80) == 0;
        count += whole ? 1 : 0;
      }
    }
    if (!whole) {
      return Error{Errc::bad_input,
                   "damaged: a list of numbers at byte " + std::to_string(begin) + " ends inside a number"};
    }
    return count_numbers(count);
  }

  const WireBlocks& blocks_;
  const std::size_t size_;
  const Limits& limits_;
  KeptBytes* const kept_;  // null: nothing is
  const bool leave_contents_;
  std::int64_t max_objects_, max_numbers_;
  std::string_view block_;
  std::size_t block_start_ = 0, at_ = 0;    // of the block in the file; of the next byte in the block
  std::size_t kept_up_to_ = 0;              // in the block: what is before it is kept, or left in the file
  bool outside_ = false, leaving_ = false;  // of the model's graph; contents of the message that is read
  std::uint64_t left_bytes_ = 0;            // by which what is kept is shorter than what was read
  std::int64_t nodes_ = 0, objects_ = 0, object_bytes_ = 0, numbers_ = 0, contents_bytes_ = 0;
};

}  // namespace

Status scan_wire(const WireBlocks& blocks, WireRoot root, const Limits& limits, KeptBytes* kept,
                 bool leave_contents) {
  if (blocks.bytes == 0) return Error{Errc::bad_input, "not an ONNX file: it is empty"};
  Scanner scanner(blocks, limits, kept, leave_contents);
  TRY(scanner.message(root == WireRoot::model ? kModel : kTensor, static_cast<std::size_t>(blocks.bytes), 0,
                      0));
  scanner.finish();
  return scanner.check_growth();
}

Status scan_wire(std::string_view bytes, WireRoot root, const Limits& limits) {
  const WireBlocks whole{static_cast<std::int64_t>(bytes.size()), [&] { return bytes; }};
  return scan_wire(whole, root, limits, nullptr, false);
}

}  // namespace gradloom
