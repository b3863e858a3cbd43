#include "engine/device/gpu/host/symbols.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>

namespace gradloom::kernels::gpu::host {
namespace {

// A file of the running program, mapped. Its contents are trusted: the dynamic linker has loaded it.
class MappedFile {
 public:
  explicit MappedFile(const char* path) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status = {};
    if (file >= 0 && fstat(file, &status) == 0 && status.st_size > 0) {
      bytes_ = std::size_t(status.st_size);
      void* at = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file, 0);
      data_ = at == MAP_FAILED ? nullptr : static_cast<const unsigned char*>(at);
    }
    if (file >= 0) close(file);
  }
  ~MappedFile() {
    if (data_ != nullptr) munmap(const_cast<unsigned char*>(data_), bytes_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const unsigned char* data() const { return data_; }
  template <class T>
  const T* at(std::size_t offset) const {
    return reinterpret_cast<const T*>(data_ + offset);
  }

 private:
  const unsigned char* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// visit(symbol, name, writable) for every symbol of .symtab: also those of anonymous namespaces, which dladdr
// does not know.
template <class Visit>
void visit_symbols(const MappedFile& file, const Visit& visit) {
  const auto* header = file.at<Elf64_Ehdr>(0);
  const auto* sections = file.at<Elf64_Shdr>(header->e_shoff);
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const auto* symbols = file.at<Elf64_Sym>(sections[i].sh_offset);
    const char* names = file.at<char>(sections[sections[i].sh_link].sh_offset);
    for (std::size_t k = 0; k < sections[i].sh_size / sizeof(Elf64_Sym); ++k) {
      const Elf64_Sym& symbol = symbols[k];
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx >= header->e_shnum) continue;
      visit(symbol, names + symbol.st_name, (sections[symbol.st_shndx].sh_flags & SHF_WRITE) != 0);
    }
  }
}

void erase_all(std::string& text, std::string_view what) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at))
    text.erase(at, what.size());
}

std::string demangled_name(const char* mangled) {
  int status = 0;
  char* demangled = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string name = demangled != nullptr ? demangled : mangled;
  std::free(demangled);
  return name;
}

// "void gradloom::kernels::gpu::(anonymous namespace)::f<float>(float const*)" -> "f<float>".
std::string short_name(const char* mangled) {
  std::string name = demangled_name(mangled);
  erase_all(name, "(anonymous namespace)::");
  erase_all(name, "gradloom::kernels::gpu::");
  if (name.rfind("void ", 0) == 0) name.erase(0, 5);
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    depth += name[i] == '<' ? 1 : name[i] == '>' ? -1 : 0;
    if (name[i] == '(' && depth == 0) return name.substr(0, i);
  }
  return name;
}

std::string mangled_name(const MappedFile& file, std::uint64_t address) {
  std::string found;
  visit_symbols(file, [&](const Elf64_Sym& symbol, const char* name, bool) {
    if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_value == address && found.empty())
      found = name;
  });
  return found;
}

KernelSymbol read_symbol(const void* function) {
  KernelSymbol kernel;
  kernel.name = "kernel at " + std::to_string(reinterpret_cast<std::uintptr_t>(function));
  Dl_info info = {};
  link_map* map = nullptr;
  if (dladdr1(function, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0) return kernel;
  const MappedFile file(map->l_name[0] != 0 ? map->l_name : "/proc/self/exe");
  if (file.data() == nullptr) return kernel;
  const std::uint64_t address = reinterpret_cast<std::uintptr_t>(function) - map->l_addr;
  const std::string mangled = mangled_name(file, address);
  if (mangled.empty()) return kernel;
  kernel.name = short_name(mangled.c_str());
  if (mangled.rfind("_Z", 0) != 0) return kernel;
  const std::string local = "_ZZ" + mangled.substr(2) + "E";  // how variables of a function are called
  visit_symbols(file, [&](const Elf64_Sym& symbol, const char* name, bool writable) {
    if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || !writable ||
        std::string_view(name).rfind(local, 0) != 0)
      return;
    auto* const code = static_cast<unsigned char*>(const_cast<void*>(function));
    kernel.shared.push_back({code + (std::int64_t(symbol.st_value) - std::int64_t(address)), symbol.st_size});
    kernel.shared_bytes += symbol.st_size;
  });
  return kernel;
}

std::string hex(std::uintptr_t number) {
  char text[2 + 16 + 1];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(number));
  return text;
}

// What of a loaded file an address belongs to.
struct Within {
  std::string file, symbol;               // mangled; empty: none
  std::uint64_t address = 0, offset = 0;  // in the file, in what the symbol names
};
Within find_symbol(const void* at, unsigned char type) {
  Dl_info info = {};
  link_map* map = nullptr;
  Within within{"", "", reinterpret_cast<std::uintptr_t>(at), 0};
  if (dladdr1(at, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0) return within;
  within.file = map->l_name[0] != 0 ? map->l_name : "/proc/self/exe";
  within.address -= map->l_addr;
  const MappedFile file(within.file.c_str());
  if (file.data() == nullptr) return within;
  visit_symbols(file, [&](const Elf64_Sym& symbol, const char* name, bool) {
    if (ELF64_ST_TYPE(symbol.st_info) != type || within.address - symbol.st_value >= symbol.st_size) return;
    within.symbol = name;
    within.offset = within.address - symbol.st_value;
  });
  return within;
}

struct Known {
  std::mutex mutex;
  std::map<const void*, KernelSymbol> symbols;
};
Known& known() {
  static Known all;
  return all;
}

}  // namespace

KernelSymbol kernel_symbol(const void* function) {
  const std::lock_guard lock(known().mutex);
  auto& symbols = known().symbols;
  const auto found = symbols.find(function);
  return found != symbols.end() ? found->second
                                : symbols.emplace(function, read_symbol(function)).first->second;
}

std::string shared_name(const void* byte) {
  const Within within = find_symbol(byte, STT_OBJECT);
  if (within.symbol.empty()) return "shared at " + hex(within.address);
  const std::string name = demangled_name(within.symbol.c_str());  // "f(float*)::tile"
  const std::size_t qualified = name.rfind("::");
  return "shared " + (qualified == std::string::npos ? name : name.substr(qualified + 2)) + "+" +
         std::to_string(within.offset);
}

std::string code_name(const void* code) {
  const Within within = find_symbol(code, STT_FUNC);
  const std::string name = within.symbol.empty() ? "" : short_name(within.symbol.c_str()) + ", ";
  const std::string file =
      within.file == "/proc/self/exe" ? "program" : within.file.substr(within.file.rfind('/') + 1);
  return name + file + " " + hex(within.address);
}

void forget_kernel_symbols() {
  const std::lock_guard lock(known().mutex);
  known().symbols.clear();
}

}  // namespace gradloom::kernels::gpu::host
