// What ranks that meet say to each other (meeting.h): every byte is defined, integers are those of x86.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

namespace gradloom::tcp {

// What a rank says first.
struct Greeting {
  std::array<char, 8> magic{};
  std::int32_t version = 0, rank = 0, world = 0, port = 0;
  std::array<char, 64> world_id{};
};

// Where a rank listens.
struct Place {
  std::array<unsigned char, 16> address{};  // of IPv6, or of IPv4 in its first four
  std::int32_t bytes = 0;                   // 4 or 16
  std::int32_t port = 0;
};

// What it hears: welcome, or why not.
struct Answer {
  std::array<char, 8> magic{};
  std::int32_t code = 0;  // 0: welcome; rank 0 then sends a Place for each rank
  std::array<char, 240> text{};
};

static_assert(std::has_unique_object_representations_v<Greeting> && sizeof(Greeting) == 88);
static_assert(std::has_unique_object_representations_v<Answer> && sizeof(Answer) == 252);
static_assert(std::has_unique_object_representations_v<Place> && sizeof(Place) == 24);

}  // namespace gradloom::tcp
