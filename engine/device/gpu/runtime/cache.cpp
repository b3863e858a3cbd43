#include "engine/device/gpu/runtime/cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

namespace gradloom::kernels::gpu {
namespace {

constexpr std::uint64_t kSeed = 14695981039346656037ull;

// FNV-1a; a second seed makes 128 bits of two.
std::uint64_t hash_of(const std::string& text, std::uint64_t hash) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash;
}

// Before the code in the file: tells a whole file from a damaged one.
struct Header {
  char magic[8] = {'g', 'r', 'd', 'l', 'o', 'o', 'm', '1'};
  std::uint64_t bytes = 0, hash = 0;
};

Header header_of(const std::string& code) {
  Header header;
  header.bytes = code.size();
  header.hash = hash_of(code, kSeed);
  return header;
}

bool write_all(int file, const void* data, std::size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = write(file, at, bytes);
    if (done <= 0) return false;
    at += done;
    bytes -= std::size_t(done);
  }
  return true;
}

}  // namespace

std::string cache_name(const std::string& source, const std::string& architecture,
                       const std::string& compiler) {
  const std::string all = architecture + '\n' + compiler + '\n' + source;
  char name[48];
  std::snprintf(name, sizeof name, "%016llx%016llx.gpu", static_cast<unsigned long long>(hash_of(all, kSeed)),
                static_cast<unsigned long long>(hash_of(all, ~kSeed)));
  return name;
}

std::string read_cache(const std::string& folder, const std::string& name) {
  std::FILE* file = std::fopen((folder + "/" + name).c_str(), "rb");
  if (file == nullptr) return "";
  constexpr std::uint64_t kMostBytes = std::uint64_t(1) << 30;
  Header header;
  std::string code;
  if (std::fread(&header, sizeof header, 1, file) == 1 && header.bytes <= kMostBytes) {
    code.resize(header.bytes);
    if (std::fread(code.data(), 1, code.size(), file) != code.size()) code.clear();
  }
  std::fclose(file);
  const Header expected = header_of(code);
  return std::memcmp(&header, &expected, sizeof header) == 0 ? code : "";
}

void write_cache(const std::string& folder, const std::string& name, const std::string& code) {
  (void)mkdir(folder.c_str(), 0700);
  std::string temporary = folder + "/" + name + ".XXXXXX";
  const int file = mkstemp(temporary.data());
  if (file < 0) return;
  const Header header = header_of(code);
  const bool written = write_all(file, &header, sizeof header) && write_all(file, code.data(), code.size()) &&
                       fsync(file) == 0;
  if (close(file) != 0 || !written || rename(temporary.c_str(), (folder + "/" + name).c_str()) != 0)
    (void)unlink(temporary.c_str());
}

}  // namespace gradloom::kernels::gpu
