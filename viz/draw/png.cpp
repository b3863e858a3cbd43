#include "viz/draw/png.h"

#include <png.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "engine/base/file.h"

namespace gradloom {

Image part_of(const Image& image, int left, int top, int right, int bottom) {
  left = std::clamp(left, 0, image.width);
  top = std::clamp(top, 0, image.height);
  Image part{std::clamp(right, left, image.width) - left, std::clamp(bottom, top, image.height) - top, {}};
  for (int y = 0; y < part.height; ++y) {
    const auto from = image.rgb.begin() + (std::ptrdiff_t{top + y} * image.width + left) * 3;
    part.rgb.insert(part.rgb.end(), from, from + std::ptrdiff_t{part.width} * 3);
  }
  return part;
}

Status write_png(const std::string& file, const Image& image) {
  png_image header;
  std::memset(&header, 0, sizeof header);
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(image.width);
  header.height = static_cast<png_uint_32>(image.height);
  header.format = PNG_FORMAT_RGB;
  header.flags = PNG_IMAGE_FLAG_FAST;  // a tenth of the time for a third more bytes
  // Compressed once: a bound on the size is known without that.
  std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(header), '\0');
  png_alloc_size_t size = bytes.size();
  if (!png_image_write_to_memory(&header, bytes.data(), &size, 0, image.rgb.data(), 0, nullptr))
    return Error{Errc::io, "cannot write " + file + ": " + header.message};
  return atomic_write_file(file, std::string_view(bytes).substr(0, size));
}

}  // namespace gradloom
