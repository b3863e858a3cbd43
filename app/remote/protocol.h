// What `gradloom serve` says over its stdout to the window at the near end, and what it is told.
//
// Messages are a line of JSON each, followed by `bytes` bytes where it says so:
//   there -> here  {"gradloom":1,"version":..,"session":"/abs/s.db","model":"/abs/m.onnx","model_hash":".."}    once, first
//   here -> there  {"model":true|false}                       whether the model's files are wanted; then nothing more
//   there -> here  {"file":"m.onnx","size":N}                 a file beside the session begins: the model, its external data
//                  {"at":O,"bytes":B} + B bytes               a part of it
//                  {"done":"m.onnx"}
//   there -> here  {"session_size":N}                         another state of the session
//                  {"at":O,"bytes":B} + B bytes               blocks that changed
//                  {"done":""}
//   there -> here  {"error":"..."}                            last
// The far end ends when nobody holds its stdin any more.
#pragma once

#include <cstdint>

namespace gradloom {

constexpr int kRemoteProtocol = 1;
constexpr std::int64_t kRemoteBlock = 16384;        // that is compared and sent; a multiple of SQLite's page
constexpr std::int64_t kMostRemoteBytes = 1 << 20;  // of a message
constexpr std::int64_t kLongestRemoteLine = 1 << 16;
constexpr std::int64_t kLargestRemoteFile = std::int64_t{1} << 40;

}  // namespace gradloom
