// Screenshots as PNG files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/result.h"

namespace gradloom {

struct Image {
  int width = 0, height = 0;
  std::vector<uint8_t> rgb;  // rows from the top
};

Image part_of(const Image& image, int left, int top, int right, int bottom);  // what of it is inside

// Writes to a temporary name beside `file` and renames, so that a reader never sees half a picture.
Status write_png(const std::string& file, const Image& image);

}  // namespace gradloom
