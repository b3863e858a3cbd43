// hostile_corpus FOLDER: writes every case of the corpus into a folder of its own, "O7-symbolic link". ./dev
// fuzz takes the ONNX files among them as seeds. Large ones are left out (--all: not).
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/hostile/corpus.h"

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  const bool all = argc > 2 && std::string(argv[2]) == "--all";
  if (argc < 2) {
    std::fprintf(stderr, "usage: hostile_corpus FOLDER [--all]\n");
    return 2;
  }
  constexpr std::uintmax_t kLargeBytes = 64 << 10;
  const fs::path outside = fs::path(argv[1]) / "outside";
  fs::create_directories(outside);
  std::ofstream(outside / "secret.bin") << gradloom::hostile::kCanary;
  for (const auto& c : gradloom::hostile::all_cases()) {
    std::string name = c.row + "-" + c.name;
    for (char& letter : name)
      if (letter == '/' || static_cast<unsigned char>(letter) < 0x20) letter = '_';
    const fs::path folder = fs::path(argv[1]) / name;
    fs::remove_all(folder);
    fs::create_directories(folder);
    c.make({folder.string(), outside.string()});
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (!all && !entry.is_symlink() && entry.is_regular_file() && entry.file_size() > kLargeBytes)
        fs::remove(entry.path());
  }
  return 0;
}
