#include "tests/fuzz/mutate.h"

#include <onnx/onnx_pb.h>

#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "engine/ir/op.h"

namespace gradloom::fuzz {

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  void mutate(onnx::ModelProto& model) {
    for (std::size_t n = 1 + below(4); n > 0; --n) {
      messages_.clear();
      texts_.clear();
      collect(model);
      change(*messages_[below(messages_.size())]);
    }
  }

  std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }

 private:
  // Messages that can be changed, and the texts of the file (names above all).
  void collect(Message& message) {
    messages_.push_back(&message);
    const Reflection& reflection = *message.GetReflection();
    std::vector<const FieldDescriptor*> fields;
    reflection.ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) {
      const int count = field->is_repeated() ? std::min(reflection.FieldSize(message, field), 200) : 1;
      for (int i = 0; i < count; ++i) {
        if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
          collect(field->is_repeated() ? *reflection.MutableRepeatedMessage(&message, field, i)
                                       : *reflection.MutableMessage(&message, field));
        } else if (field->type() == FieldDescriptor::TYPE_STRING) {
          texts_.push_back(field->is_repeated() ? reflection.GetRepeatedString(message, field, i)
                                                : reflection.GetString(message, field));
        }
      }
    }
  }

  void change(Message& message) {
    const Reflection& reflection = *message.GetReflection();
    std::vector<const FieldDescriptor*> fields;
    reflection.ListFields(message, &fields);
    const auto* descriptor = message.GetDescriptor();
    // Mostly fields that are there.
    const FieldDescriptor* field =
        !fields.empty() && below(4) != 0
            ? fields[below(fields.size())]
            : descriptor->field(static_cast<int>(below(static_cast<std::size_t>(descriptor->field_count()))));
    if (field->is_repeated()) return change_list(message, reflection, field);
    if (below(6) == 0) return reflection.ClearField(&message, field);
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return reflection.SetInt32(&message, field,
                                   static_cast<std::int32_t>(integer(reflection.GetInt32(message, field))));
      case FieldDescriptor::CPPTYPE_INT64:
        return reflection.SetInt64(&message, field, integer(reflection.GetInt64(message, field)));
      case FieldDescriptor::CPPTYPE_FLOAT:
        return reflection.SetFloat(&message, field, static_cast<float>(real()));
      case FieldDescriptor::CPPTYPE_ENUM: {
        const auto* type = field->enum_type();
        return reflection.SetEnum(
            &message, field,
            type->value(static_cast<int>(below(static_cast<std::size_t>(type->value_count())))));
      }
      case FieldDescriptor::CPPTYPE_STRING:
        return reflection.SetString(&message, field, text(*field, reflection.GetString(message, field)));
      case FieldDescriptor::CPPTYPE_MESSAGE:
        if (const auto other = another(field); other != nullptr)
          reflection.MutableMessage(&message, field)->CopyFrom(*other);
        return;
      default: return;
    }
  }

  void change_list(Message& message, const Reflection& reflection, const FieldDescriptor* field) {
    const int count = reflection.FieldSize(message, field);
    const auto any = [&] { return static_cast<int>(below(static_cast<std::size_t>(count))); };
    switch (below(count > 0 ? 5 : 1)) {
      case 0: return add(message, reflection, field);
      case 1: return reflection.RemoveLast(&message, field);
      case 2: return reflection.SwapElements(&message, field, any(), any());
      case 3:  // one out of the middle
        reflection.SwapElements(&message, field, any(), count - 1);
        return reflection.RemoveLast(&message, field);
      default: break;
    }
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32: {
        const int i = any();
        return reflection.SetRepeatedInt32(
            &message, field, i,
            static_cast<std::int32_t>(integer(reflection.GetRepeatedInt32(message, field, i))));
      }
      case FieldDescriptor::CPPTYPE_INT64: {
        const int i = any();
        return reflection.SetRepeatedInt64(&message, field, i,
                                           integer(reflection.GetRepeatedInt64(message, field, i)));
      }
      case FieldDescriptor::CPPTYPE_FLOAT:
        return reflection.SetRepeatedFloat(&message, field, any(), static_cast<float>(real()));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return reflection.SetRepeatedDouble(&message, field, any(), real());
      case FieldDescriptor::CPPTYPE_STRING: {
        const int i = any();
        return reflection.SetRepeatedString(&message, field, i,
                                            text(*field, reflection.GetRepeatedString(message, field, i)));
      }
      case FieldDescriptor::CPPTYPE_MESSAGE: {
        if (const auto other = another(field); other != nullptr)
          reflection.MutableRepeatedMessage(&message, field, any())->CopyFrom(*other);
        return;
      }
      default: return;
    }
  }

  void add(Message& message, const Reflection& reflection, const FieldDescriptor* field) {
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return reflection.AddInt32(&message, field, static_cast<std::int32_t>(integer(1)));
      case FieldDescriptor::CPPTYPE_INT64: return reflection.AddInt64(&message, field, integer(1));
      case FieldDescriptor::CPPTYPE_FLOAT:
        return reflection.AddFloat(&message, field, static_cast<float>(real()));
      case FieldDescriptor::CPPTYPE_DOUBLE: return reflection.AddDouble(&message, field, real());
      case FieldDescriptor::CPPTYPE_STRING: return reflection.AddString(&message, field, text(*field, ""));
      case FieldDescriptor::CPPTYPE_MESSAGE: {
        const auto other = another(field);
        Message* added = reflection.AddMessage(&message, field);
        if (other != nullptr) added->CopyFrom(*other);
        return;
      }
      default: return;
    }
  }

  // A copy of some message of the field's kind, or none: the place that it goes to may lie inside it, and
  // choosing one member of a oneof deletes the others.
  std::unique_ptr<Message> another(const FieldDescriptor* field) {
    constexpr std::size_t kMaxBytes = 20000;
    std::vector<const Message*> same;
    for (const Message* other : messages_)
      if (other->GetDescriptor() == field->message_type()) same.push_back(other);
    if (same.empty()) return nullptr;
    const Message* chosen = same[below(same.size())];
    if (chosen->ByteSizeLong() > kMaxBytes) return nullptr;
    std::unique_ptr<Message> copy(chosen->New());
    copy->CopyFrom(*chosen);
    return copy;
  }

  std::int64_t integer(std::int64_t now) {
    constexpr std::int64_t kEdges[] = {0,
                                       1,
                                       -1,
                                       2,
                                       3,
                                       -2,
                                       7,
                                       16,
                                       127,
                                       255,
                                       65536,
                                       std::int64_t{1} << 31,
                                       (std::int64_t{1} << 31) - 1,
                                       -(std::int64_t{1} << 31),
                                       std::int64_t{1} << 32,
                                       std::int64_t{1} << 40,
                                       std::int64_t{1} << 62,
                                       std::numeric_limits<std::int64_t>::max(),
                                       std::numeric_limits<std::int64_t>::min()};
    switch (below(4)) {
      case 0: return kEdges[below(std::size(kEdges))];
      case 1: return static_cast<std::int64_t>(static_cast<std::uint64_t>(now) + 1);
      case 2: return static_cast<std::int64_t>(static_cast<std::uint64_t>(now) - 1);
      default: return static_cast<std::int64_t>(below(24)) - 2;
    }
  }

  double real() {
    constexpr double kEdges[] = {0,
                                 -0.0,
                                 1,
                                 -1,
                                 0.5,
                                 1e-45,
                                 1e-30,
                                 3e38,
                                 -3e38,
                                 std::numeric_limits<double>::infinity(),
                                 -std::numeric_limits<double>::infinity(),
                                 std::numeric_limits<double>::quiet_NaN()};
    return kEdges[below(std::size(kEdges))];
  }

  std::string text(const FieldDescriptor& field, const std::string& now) {
    if (field.name() == "op_type" && below(4) != 0) {
      const auto ops = all_ops();
      return ops[below(ops.size())]->name;
    }
    if (field.type() == FieldDescriptor::TYPE_BYTES) return mutate_bytes(now, random_());
    switch (below(6)) {
      case 0: return "";
      case 1: return mutate_bytes(now, random_());
      default: return texts_.empty() ? now : texts_[below(texts_.size())];
    }
  }

  std::mt19937_64 random_;
  std::vector<Message*> messages_;
  std::vector<std::string> texts_;
};

}  // namespace

std::string mutate_bytes(std::string_view bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  std::string out(bytes);
  for (std::size_t n = 1 + below(3); n > 0; --n) {
    const std::size_t at = below(out.size() + 1);
    switch (below(5)) {
      case 0: out.insert(at, 1 + below(4), static_cast<char>(below(256))); break;
      case 1: out.erase(at, 1 + below(8)); break;
      case 2:
        if (at < out.size()) out[at] = static_cast<char>(out[at] ^ (1 << below(8)));
        break;
      case 3:
        if (at < out.size()) out[at] = static_cast<char>(below(2) == 0 ? 0xff : 0);
        break;
      default: out.insert(at, out.substr(below(out.size() + 1), 1 + below(16))); break;
    }
  }
  return out;
}

std::string mutate_model(std::string_view bytes, std::uint64_t seed) {
  onnx::ModelProto model;
  if (bytes.empty() || !model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return mutate_bytes(bytes, seed);
  Mutator(seed).mutate(model);
  return model.SerializePartialAsString();
}

}  // namespace gradloom::fuzz
