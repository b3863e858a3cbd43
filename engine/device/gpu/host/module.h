// Generated programs on the host: C++ compiler, then dlopen.
#pragma once

#include <string>
#include <vector>

namespace gradloom::kernels::gpu::host {

class Module {
 public:
  // Compiles `source` (compiler.h) or takes the code from `cache_folder` (null: no cache). error() holds the
  // compiler's text when it fails.
  Module(const std::string& source, const std::vector<std::string>& entries, const char* cache_folder);
  // Of compiled code.
  explicit Module(const std::string& code);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const std::string& error() const { return error_; }
  using Entry = void (*)(const void* params);
  const std::vector<Entry>& entries() const { return entries_; }
  // Null: there is none of this name.
  Entry find(const std::string& entry) const { return reinterpret_cast<Entry>(symbol(entry)); }
  void* symbol(const std::string& name) const;

 private:
  void load(const std::string& code);
  std::string error_;
  std::vector<Entry> entries_;
  int file_ = -1;  // the code, in memory: each load is a file of its own, so that equal names never meet
  void* library_ = nullptr;
};

}  // namespace gradloom::kernels::gpu::host
