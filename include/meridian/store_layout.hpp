// The arena of Meridian's object cache, version 1: docs/store-layout.md says what
// each field means, store.hpp has what producers and readers do. Made from
// keep/store/arena; do not edit.

#ifndef MERIDIAN_STORE_LAYOUT_HPP
#define MERIDIAN_STORE_LAYOUT_HPP

#include <cstddef>
#include <cstdint>

namespace meridian::store {

inline constexpr std::uint32_t layout_version = 1;
inline constexpr std::size_t segment_bytes = 4096;
inline constexpr std::size_t granule_bytes = 64;
inline constexpr std::size_t free_classes = 8;
inline constexpr std::size_t max_key_bytes = 1024;
inline constexpr std::uint32_t default_page_bytes = 262144;
inline constexpr std::uint32_t flag_pinned = 1, flag_unchecked = 2;

enum class State : std::uint32_t { reserved = 0, writing = 1, ready = 2, dead = 3 };

// At offset 0. One for each arena.
struct HeapCtl {
    std::uint64_t heap_base;
    std::uint64_t heap_limit;
    std::uint64_t bump_ptr;
    std::uint64_t hdr_base;
    std::uint32_t hdr_count;
    std::uint32_t hdr_head;
    std::uint64_t free_head[8];
    std::uint64_t ann_base;
    std::uint32_t ann_capacity;
    std::uint32_t ann_head;
    std::uint32_t ann_tail;
    std::uint32_t epoch;
    std::uint32_t water_hi;
    std::uint32_t water_lo;
    std::uint32_t used_percent;
    std::uint32_t layout;
};
static_assert(sizeof(HeapCtl) == 144);
static_assert(offsetof(HeapCtl, heap_base) == 0);
static_assert(offsetof(HeapCtl, heap_limit) == 8);
static_assert(offsetof(HeapCtl, bump_ptr) == 16);
static_assert(offsetof(HeapCtl, hdr_base) == 24);
static_assert(offsetof(HeapCtl, hdr_count) == 32);
static_assert(offsetof(HeapCtl, hdr_head) == 36);
static_assert(offsetof(HeapCtl, free_head) == 40);
static_assert(offsetof(HeapCtl, ann_base) == 104);
static_assert(offsetof(HeapCtl, ann_capacity) == 112);
static_assert(offsetof(HeapCtl, ann_head) == 116);
static_assert(offsetof(HeapCtl, ann_tail) == 120);
static_assert(offsetof(HeapCtl, epoch) == 124);
static_assert(offsetof(HeapCtl, water_hi) == 128);
static_assert(offsetof(HeapCtl, water_lo) == 132);
static_assert(offsetof(HeapCtl, used_percent) == 136);
static_assert(offsetof(HeapCtl, layout) == 140);

// From hdr_base. One for each object.
struct ObjHeader {
    std::uint64_t key_hash;
    std::uint32_t n_pages;
    std::uint32_t page_size;
    std::uint64_t payload_base;
    std::uint64_t bytes_total;
    std::uint32_t state;
    std::uint32_t epoch;
    std::uint64_t last_access;
    std::uint32_t flags;
    std::uint32_t key_len;
    std::uint64_t checksum;
};
static_assert(sizeof(ObjHeader) == 64);
static_assert(offsetof(ObjHeader, key_hash) == 0);
static_assert(offsetof(ObjHeader, n_pages) == 8);
static_assert(offsetof(ObjHeader, page_size) == 12);
static_assert(offsetof(ObjHeader, payload_base) == 16);
static_assert(offsetof(ObjHeader, bytes_total) == 24);
static_assert(offsetof(ObjHeader, state) == 32);
static_assert(offsetof(ObjHeader, epoch) == 36);
static_assert(offsetof(ObjHeader, last_access) == 40);
static_assert(offsetof(ObjHeader, flags) == 48);
static_assert(offsetof(ObjHeader, key_len) == 52);
static_assert(offsetof(ObjHeader, checksum) == 56);

// From ann_base, a ring. A producer tells the owner of an object that is READY.
struct Announce {
    std::uint64_t key_hash;
    std::uint32_t owner_rank;
    std::uint32_t epoch;
    std::uint64_t header_off;
    std::uint64_t payload_off;
    std::uint32_t n_pages;
    std::uint32_t page_size;
    std::uint64_t bytes_total;
};
static_assert(sizeof(Announce) == 48);
static_assert(offsetof(Announce, key_hash) == 0);
static_assert(offsetof(Announce, owner_rank) == 8);
static_assert(offsetof(Announce, epoch) == 12);
static_assert(offsetof(Announce, header_off) == 16);
static_assert(offsetof(Announce, payload_off) == 24);
static_assert(offsetof(Announce, n_pages) == 32);
static_assert(offsetof(Announce, page_size) == 36);
static_assert(offsetof(Announce, bytes_total) == 40);

}  // namespace meridian::store

#endif
