// XXH3-64 in C++20, with the default secret and without a seed: the hash of the
// object cache's keys and payloads. Plain C++ that compilers can vectorise: -O3,
// and -march= for the machine that will run it, help.

#ifndef MERIDIAN_XXH3_HPP
#define MERIDIAN_XXH3_HPP

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace meridian::xxh3 {

static_assert(std::endian::native == std::endian::little, "words are read as they lie");

namespace detail {

__extension__ using Wide = unsigned __int128;
using Lanes = std::array<std::uint64_t, 8>;

inline constexpr std::uint64_t prime32[] = {0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D};
inline constexpr std::uint64_t prime64[] = {0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9,
                                            0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5};
inline constexpr std::size_t stripe = 64, stripes_of_block = 16;

inline constexpr unsigned char secret[192] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4, 0x6d, 0xe9,
    0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78,
    0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6,
    0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f,
    0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31,
    0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff,
    0xfa, 0x13, 0x63, 0xeb, 0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f,
    0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e};

inline std::uint64_t word(const unsigned char* at) {
    std::uint64_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

inline std::uint64_t half(const unsigned char* at) {
    std::uint32_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

inline std::uint64_t key(std::size_t at) { return word(secret + at); }

inline std::uint64_t folded(std::uint64_t a, std::uint64_t b) {
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

inline std::uint64_t avalanche(std::uint64_t h) {
    h = (h ^ h >> 37) * 0x165667919E3779F9;
    return h ^ h >> 32;
}

// XXH64's.
inline std::uint64_t old_avalanche(std::uint64_t h) {
    h = (h ^ h >> 33) * prime64[1];
    h = (h ^ h >> 29) * prime64[2];
    return h ^ h >> 32;
}

inline std::uint64_t mixed(const unsigned char* at, std::size_t with) {
    return folded(word(at) ^ key(with), word(at + 8) ^ key(with + 8));
}

// Of at most 16 bytes.
inline std::uint64_t small(const unsigned char* data, std::size_t size) {
    if (size > 8) {
        const std::uint64_t low = word(data) ^ key(24) ^ key(32), high = word(data + size - 8) ^ key(40) ^ key(48);
        return avalanche(size + __builtin_bswap64(low) + high + folded(low, high));
    }
    if (size >= 4) {
        std::uint64_t h = (half(data + size - 4) + (half(data) << 32)) ^ key(8) ^ key(16);
        h ^= std::rotl(h, 49) ^ std::rotl(h, 24);
        h *= 0x9FB21C651E98DF25;
        h = (h ^ ((h >> 35) + size)) * 0x9FB21C651E98DF25;
        return h ^ h >> 28;
    }
    if (size == 0) return old_avalanche(key(56) ^ key(64));
    const std::uint64_t first = data[0], middle = data[size >> 1], last = data[size - 1];
    return old_avalanche((first << 16 | middle << 24 | last | size << 8) ^ half(secret) ^ half(secret + 4));
}

// Of 17 to 240 bytes.
inline std::uint64_t medium(const unsigned char* data, std::size_t size) {
    std::uint64_t h = size * prime64[0];
    if (size <= 128) {
        for (std::size_t n = 0; n <= (size - 1) / 32; ++n)
            h += mixed(data + 16 * n, 32 * n) + mixed(data + size - 16 * (n + 1), 32 * n + 16);
        return avalanche(h);
    }
    for (std::size_t n = 0; n < 8; ++n) h += mixed(data + 16 * n, 16 * n);
    h = avalanche(h);
    for (std::size_t n = 8; n < size / 16; ++n) h += mixed(data + 16 * n, 16 * (n - 8) + 3);
    return avalanche(h + mixed(data + size - 16, 119));
}

inline void accumulate(Lanes& lanes, const unsigned char* data, const unsigned char* with) {
    for (std::size_t n = 0; n < 8; ++n) {
        const std::uint64_t value = word(data + 8 * n), keyed = value ^ word(with + 8 * n);
        lanes[n ^ 1] += value;
        lanes[n] += (keyed & 0xffffffff) * (keyed >> 32);
    }
}

// Of more than 240 bytes.
inline std::uint64_t large(const unsigned char* data, std::size_t size) {
    Lanes lanes{prime32[2], prime64[0], prime64[1], prime64[2], prime64[3], prime32[1], prime64[4], prime32[0]};
    for (std::size_t n = 0; n < (size - 1) / stripe; ++n) {
        accumulate(lanes, data + stripe * n, secret + 8 * (n % stripes_of_block));
        if (n % stripes_of_block != stripes_of_block - 1) continue;
        for (std::size_t lane = 0; lane < 8; ++lane)
            lanes[lane] = (lanes[lane] ^ lanes[lane] >> 47 ^ key(128 + 8 * lane)) * prime32[0];
    }
    accumulate(lanes, data + size - stripe, secret + 121);
    std::uint64_t h = size * prime64[0];
    for (std::size_t n = 0; n < 8; n += 2) h += folded(lanes[n] ^ key(11 + 8 * n), lanes[n + 1] ^ key(19 + 8 * n));
    return avalanche(h);
}

}  // namespace detail

inline std::uint64_t hash(const void* data, std::size_t size) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    return size <= 16 ? detail::small(bytes, size) : size <= 240 ? detail::medium(bytes, size) : detail::large(bytes, size);
}

}  // namespace meridian::xxh3

#endif
