// What passes say of places that they leave alone: each reason stands in a test that brings it about.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/paths.h"

namespace {
namespace fs = std::filesystem;

struct Literal {
  std::size_t begin = 0;
  std::string text;
};

// String literals of a C++ text, neighbours joined. Comments and characters are skipped.
std::vector<Literal> literals_of(const std::string& text) {
  std::vector<Literal> found;
  std::size_t end_of_last = std::string::npos;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "//") == 0) {
      i = std::min(text.find('\n', i), text.size());
    } else if (text[i] == '\'' && i > 0 && std::isalnum(static_cast<unsigned char>(text[i - 1])) == 0) {
      for (++i; i < text.size() && text[i] != '\''; ++i)
        if (text[i] == '\\') ++i;
    } else if (text[i] == '"') {
      const std::size_t begin = i;
      std::string content;
      for (++i; i < text.size() && text[i] != '"'; ++i) {
        if (text[i] == '\\') content += text[i++];
        content += text[i];
      }
      const bool joins = end_of_last != std::string::npos &&
                         std::all_of(text.begin() + static_cast<std::ptrdiff_t>(end_of_last) + 1,
                                     text.begin() + static_cast<std::ptrdiff_t>(begin),
                                     [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; });
      if (joins)
        found.back().text += content;
      else
        found.push_back({begin, content});
      end_of_last = i;
    }
  }
  return found;
}

std::string read_text(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

// Long enough to say something.
bool is_reason(const std::string& text) {
  return trimmed(text).size() >= 8 && trimmed(text).find(' ') != std::string::npos;
}

// A literal of a statement that refuses, or returns or keeps why.
bool refuses(const std::string& text, std::size_t literal) {
  const std::size_t begin = text.find_last_of(";{}", literal) + 1;
  const std::string statement = text.substr(begin, literal - begin);
  if (statement.find("Errc") != std::string::npos) return false;
  const std::vector<std::string> words{"reject(", "refuse(", "refuse_all(", "why = ", "return "};
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return statement.find(word) != std::string::npos; });
}

using Reason = std::pair<std::string, std::string>;  // file, text
const std::string kBetween = " .. ";                 // stands for what a reason names

std::set<Reason> reasons_of_passes() {
  // Errors in what users wrote, and texts that are no reasons.
  const std::set<std::string> others{"pass.cpp", "pattern.cpp", "precision.cpp", "rule_template.cpp",
                                     "rules.cpp"};
  std::set<Reason> reasons;
  for (const auto& entry : fs::directory_iterator(fs::path(GRADLOOM_SOURCE_DIR) / "passes")) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".cpp" || others.count(name) != 0) continue;
    const std::string text = read_text(entry.path());
    std::size_t end = 0;
    Reason last;
    for (const Literal& literal : literals_of(text)) {
      if (!refuses(text, literal.begin)) continue;
      const std::string between = text.substr(end, literal.begin - end);
      const bool goes_on = !last.second.empty() && between.find_first_of(";{}?") == std::string::npos &&
                           between.find(" : ") == std::string::npos && between.find('+') != std::string::npos;
      if (goes_on) reasons.erase(last);
      last = {name, (goes_on ? last.second + kBetween : "") + trimmed(literal.text)};
      if (is_reason(last.second)) reasons.insert(last);
      end = literal.begin;
    }
  }
  return reasons;
}

// What tests look for: a reason, a part of it, or more than its text.
std::set<std::string> texts_of_tests() {
  std::set<std::string> texts;
  for (const char* const folder : {"tests/passes", "tests/app"})
    for (const auto& entry : fs::directory_iterator(fs::path(GRADLOOM_SOURCE_DIR) / folder))
      if (entry.path().extension() == ".cpp")
        for (const Literal& literal : literals_of(read_text(entry.path())))
          if (is_reason(literal.text)) texts.insert(trimmed(literal.text));
  return texts;
}

// The text has a part of the reason that says something.
bool holds_parts(const std::string& text, const std::string& reason) {
  for (std::size_t begin = 0, end = 0; begin < reason.size(); begin = end + kBetween.size()) {
    end = std::min(reason.find(kBetween, begin), reason.size());
    const std::string part = reason.substr(begin, end - begin);
    if (is_reason(part) && text.find(part) != std::string::npos) return true;
  }
  return false;
}

// Reasons that no test brings about yet. None may be added.
const std::set<Reason> kUntested = {
    {"data_parallel.cpp", ", in bf16"},
    {"data_parallel.cpp", "exchanges in one"},
    {"drop_padding.cpp", "it makes sums"},
    {"drop_padding.cpp", "it multiplies more than rows"},
    {"drop_padding.cpp", "it multiplies rows with rows"},
    {"drop_padding.cpp", "it sums over other axes"},
    {"drop_padding.cpp", "its rows leave the graph"},
    {"drop_padding.cpp", "no rows are left out of"},
    {"drop_padding.cpp", "rows are broadcast"},
    {"drop_padding.cpp", "rows are normalized together"},
    {"drop_padding.cpp", "rows are not the first axis"},
    {"fp8.cpp", "it multiplies integers"},
    {"fp8.cpp", "its bias is not along the last dim"},
    {"fp8.cpp", "its second operand is more than one matrix"},
    {"fuse_accumulate.cpp", "the product has a bias or an activation"},
    {"fuse_accumulate.cpp", "there is nothing to multiply"},
    {"fuse_attention.cpp", "nothing reads the probabilities"},
    {"fuse_gather_grad.cpp", "this processor adds 16-bit rows in f32, and would convert the whole table"},
    {"fuse_layernorm.cpp", "the input is not floating point"},
    {"fuse_linear_cross_entropy.cpp", "has axes that are not constant"},
    {"fuse_linear_cross_entropy.cpp", "is along every axis"},
    {"fuse_linear_cross_entropy.cpp", "is along the classes"},
    {"fuse_linear_cross_entropy.cpp", "is no product of a matrix"},
    {"fuse_linear_cross_entropy.cpp", "takes classes, not rows"},
    {"fuse_matmul_epilogue.cpp",
     "columns: the libraries keep the value for the gradient in lines of a multiple of"},
    {"fuse_matmul_epilogue.cpp", "the product has a bias"},
    {"fuse_matmul_epilogue.cpp", "the shapes differ"},
    {"fuse_optimizer.cpp", "no other update has the same type, options, step and gradient scale"},
    {"fuse_residual.cpp", "it adds a gradient already"},
    {"fuse_residual.cpp", "the product has a second result"},
    {"fuse_residual.cpp", "the product is of nothing"},
    {"fuse_rmsnorm.cpp", "the input is not floating point"},
    {"fuse_softmax_cross_entropy.cpp", "LogSoftmax before opset 13 flattens the axes after 1"},
    {"given_gradients.cpp", "stood for a gradient"},
    {"memory_order.cpp", "no order that was found lowers the peak by min_percent"},
    {"move_casts.cpp", "a cast less"},
    {"move_casts.cpp", "an elementwise operator takes it in where it is"},
    {"move_casts.cpp", "and others"},
    {"move_casts.cpp", "less to move"},
    {"move_casts.cpp", "node .. is of another part of the step"},
    {"offload.cpp", "it has no bytes"},
    {"offload.cpp", "it is a state, which stays"},
    {"offload.cpp", "it is read in the forward pass and in the backward pass by turns"},
    {"offload.cpp", "it leaves already"},
    {"padding_mask.cpp", "a mask is too large to try"},
    {"padding_mask.cpp", "its axes of batch and position are not known"},
    {"padding_mask.cpp", "its last axis is not that of keys"},
    {"padding_mask.cpp", "its operands are too large to try a mask"},
    {"padding_mask.cpp", "several inputs say what it leaves out (option mask names one)"},
    {"recompute.cpp", "it is a copy to the host"},
    {"recompute.cpp", "it is code of the caller, which runs once"},
    {"row_rules.cpp", "has an operand of more dims"},
    {"scanner.cpp", "expected .. , got"},
    {"select_rows.cpp", "has several results"},
    {"select_rows.cpp", "is read whole, too"},
    {"select_rows.cpp", "it takes the rows backwards"},
    {"select_rows.cpp", "would be selected in two ways"},
    {"simplify_slices.cpp", "an index is out of range"},
    {"simplify_transposes.cpp", "is not transposed"},
    {"simplify_transposes.cpp", "reads no tensor"},
    {"simplify_transposes.cpp", "there are more than 64 nodes between"},
    {"sync_batchnorm.cpp", "its running statistics stay as they are"},
    {"tensor_parallel.cpp",
     "weights=low rounds at random, by the place of an element in the whole parameter"},
    {"tensor_split_rules.cpp", "it adds parts up, but of no rows of a weight"},
    {"tensor_split_rules.cpp", "it has a part of a tensor already"},
    {"tensor_split_rules.cpp", "its log-probabilities are read"},
    {"tensor_split_rules.cpp", "what it multiplies with is no weight"},
    {"tensor_splits.cpp", "' .. ' would be split and is needed whole"},
    {"tensor_splits.cpp", "( .. ' .. ')"},
    {"tensor_splits.cpp", "is empty"},
    {"tensor_splits.cpp", "is no result of the model"},
    {"tensor_splits.cpp", "is split already"},
    {"tensor_splits.cpp", "leaves the graph"},
    {"tensor_splits.cpp", "nothing adds the parts up"},
    {"tensor_splits.cpp", "sizes of ' .. ' are not known"},
    {"tensor_splits.cpp", "would be split and is needed whole"},
    {"tensor_splits.cpp", "would be split in two ways"},
    {"transposed.cpp", "node .. is no reduction"},
    {"zero.cpp", "it updates several values at once"},
};

TEST(Reasons, EachStandsInATestThatBringsItAbout) {
  const std::set<Reason> reasons = reasons_of_passes();
  const std::set<std::string> texts = texts_of_tests();
  EXPECT_GT(reasons.size(), 200u) << "the scanner overlooks reasons";
  for (const Reason& reason : reasons) {
    const bool tested = std::any_of(texts.begin(), texts.end(), [&](const std::string& text) {
      return reason.second.find(text) != std::string::npos || holds_parts(text, reason.second);
    });
    EXPECT_NE(tested, kUntested.count(reason) != 0)
        << reason.first << ": '" << reason.second << "' "
        << (tested ? "has a test now: take it off the list" : "stands in no test of tests/passes");
  }
  for (const Reason& reason : kUntested)
    EXPECT_EQ(reasons.count(reason), 1u) << reason.first << " does not say '" << reason.second << "'";
}

}  // namespace
