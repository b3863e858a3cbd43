// A rollback journal as a crash leaves it (sqlite.org/fileformat2.html, 3).
#pragma once

#include <cstdint>
#include <string>

namespace gradloom::test {

inline std::string big_endian_text(std::uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text.push_back(static_cast<char>(value >> shift));
  return text;
}

// No page is to be restored in a file of `pages` pages. With `victim` the name of a super-journal at its end,
// which SQLite deletes after rolling back.
inline std::string hot_journal(const std::string& victim, std::uint32_t pages) {
  constexpr std::uint32_t kSector = 512, kPage = 4096, kPendingPage = 0x40000000 / kPage + 1;
  const std::string magic("\xd9\xd5\x05\xf9\x20\xa1\x63\xd7", 8);
  std::string journal = magic + big_endian_text(0) + big_endian_text(7) + big_endian_text(pages) +
                        big_endian_text(kSector) + big_endian_text(kPage);
  journal.resize(kSector);
  if (victim.empty()) return journal;
  std::uint32_t sum = 0;
  for (const char c : victim) sum += static_cast<std::uint32_t>(static_cast<signed char>(c));
  return journal + big_endian_text(kPendingPage) + victim +
         big_endian_text(static_cast<std::uint32_t>(victim.size())) + big_endian_text(sum) + magic;
}

}  // namespace gradloom::test
