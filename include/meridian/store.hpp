// The arena of Meridian's object cache in C++20, for a process that maps it: a
// producer takes room, writes, makes its object READY and announces it; a reader
// copies and checks. Header-only, no exceptions. docs/store-layout.md is the
// definition; the vectors in testdata/store hold this header, Go and Python together.
//
// Whatever lies in an arena may be the writing of any process. Its bounds are checked once,
// when it is opened, and kept apart; records are copied out before they are looked at.

#ifndef MERIDIAN_STORE_HPP
#define MERIDIAN_STORE_HPP

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "store_layout.hpp"
#include "xxh3.hpp"

namespace meridian::store {

enum class Error {
    none,
    layout,    // the memory holds no arena of this layout
    argument,  // a key, a length or a slice that cannot be
    full,      // no room that could be taken without the owner: ask it
    gone,      // the object is not ready, or another took its place
    foreign,   // the object has another key
    torn,      // the object's checksum does not match its bytes
};

constexpr const char* name(Error error) {
    constexpr const char* names[] = {"good", "layout", "argument", "full", "gone", "foreign", "torn"};
    return names[static_cast<std::size_t>(error)];
}

constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t to) { return (n + to - 1) & ~(to - 1); }

// How the bytes of an object lie in its extent, from its start.
struct Extent {
    std::uint64_t align, sums, key, size;
};

constexpr Extent extent_of(std::uint64_t bytes, std::uint64_t key_bytes) {
    const std::uint64_t align = bytes >= segment_bytes ? segment_bytes : granule_bytes;
    const std::uint64_t sums = round_up(bytes, 8), key = sums + 8 * ((bytes + segment_bytes - 1) / segment_bytes);
    return {align, sums, key, round_up(key + key_bytes, align)};
}

// The first size class whose extents all have so many bytes, or free_classes.
constexpr std::size_t class_of(std::uint64_t bytes) {
    std::size_t c = 0;
    while (c < free_classes && bytes > std::uint64_t{segment_bytes} << (2 * c)) ++c;
    return c;
}

// The key of an object in an arena, for a tenant's key of the object cache: the length of
// the tenant as an unsigned varint, the tenant, the key. The agent finds no object by
// another. Empty, which nothing takes, where the key is.
inline std::string object_name(std::string_view tenant, std::string_view key) {
    std::string name;
    if (key.empty()) return name;
    std::uint64_t length = tenant.size();
    for (; length >= 0x80; length >>= 7) name.push_back(static_cast<char>(length | 0x80));
    name.push_back(static_cast<char>(length));
    return name.append(tenant).append(key);
}

// The hash of a key; never 0, which means none.
inline std::uint64_t hash_key(std::string_view key) {
    return std::max<std::uint64_t>(1, xxh3::hash(key.data(), key.size()));
}

// State and epoch of a header, as one word.
constexpr std::uint64_t word_of(State state, std::uint32_t epoch) {
    return std::uint64_t{epoch} << 32 | static_cast<std::uint32_t>(state);
}

// Room for an object that its producer writes.
struct Reservation {
    std::uint32_t index;
    ObjHeader header;
};

// An object as a reader was told of it.
struct Wanted {
    std::uint32_t index, epoch;
    std::string_view key;
};

class Arena {
public:
    // Looks at an arena that is mapped at memory, which must lie at a multiple of 8.
    static Error open(void* memory, std::size_t size, Arena& arena) {
        Arena a;
        if (size < segment_bytes || reinterpret_cast<std::uintptr_t>(memory) % 8 != 0) return Error::layout;
        a.memory_ = static_cast<unsigned char*>(memory);
        HeapCtl c;
        std::memcpy(&c, memory, sizeof c);
        const bool good = c.layout == layout_version && c.hdr_count > 0 && c.hdr_count <= max_headers &&
                          inside(c.hdr_base, c.hdr_count * sizeof(ObjHeader), sizeof(ObjHeader), size) &&
                          c.ann_capacity > 0 && (c.ann_capacity & (c.ann_capacity - 1)) == 0 &&
                          inside(c.ann_base, c.ann_capacity * sizeof(Announce), 8, size) && c.heap_base < c.heap_limit &&
                          inside(c.heap_base, c.heap_limit - c.heap_base, segment_bytes, size);
        if (!good) return Error::layout;
        a.base_ = c.heap_base, a.limit_ = c.heap_limit;
        a.headers_ = c.hdr_base, a.header_count_ = c.hdr_count;
        a.ring_ = c.ann_base, a.ring_count_ = c.ann_capacity;
        arena = a;
        return Error::none;
    }

    // Takes room for an object without asking the owner: from a free list of its class
    // or a larger one, else from what was never given out.
    Error reserve(std::string_view key, std::uint64_t bytes, Reservation& r,
                  std::uint32_t page_bytes = default_page_bytes) const {
        ObjHeader h{};
        h.key_hash = hash_key(key), h.bytes_total = bytes, h.page_size = page_bytes;
        h.key_len = static_cast<std::uint32_t>(std::min<std::size_t>(key.size(), max_key_bytes + 1));
        h.payload_base = base_;
        if (bytes == 0 || page_bytes == 0) return Error::argument;
        h.n_pages = static_cast<std::uint32_t>((bytes - 1) / page_bytes + 1);
        if (!lies_inside(h)) return Error::argument;
        if (half(offsetof(HeapCtl, used_percent)).load() > half(offsetof(HeapCtl, water_hi)).load()) return Error::full;
        if (!take_room(extent_of(bytes, h.key_len), r.index, h.payload_base)) return Error::full;
        std::uint64_t was = word(word_at(r.index)).load(std::memory_order_acquire);
        h.epoch = static_cast<std::uint32_t>(was >> 32);
        h.state = static_cast<std::uint32_t>(State::writing);
        store_header(r.index, h);
        if (was != word_of(State::reserved, h.epoch)) return Error::full;
        if (!word(word_at(r.index)).compare_exchange_strong(was, word_of(State::writing, h.epoch))) return Error::full;
        r.header = h;
        return Error::none;
    }

    // Where the producer of a reservation writes its payload.
    unsigned char* payload(const Reservation& r) const { return memory_ + r.header.payload_base; }

    // Writes sums and key behind a payload that is complete, and makes the object
    // READY. False if the owner has taken the room back meanwhile.
    bool seal(Reservation& r, std::string_view key) const {
        ObjHeader& h = r.header;
        const Extent e = extent_of(h.bytes_total, h.key_len);
        unsigned char* const extent = memory_ + h.payload_base;
        for (std::uint64_t at = 0; at < h.bytes_total; at += segment_bytes) {
            const std::uint64_t sum = sum_of(extent, h.bytes_total, at);
            std::memcpy(extent + e.sums + at / segment_bytes * 8, &sum, sizeof sum);
        }
        std::memcpy(extent + e.key, key.data(), std::min<std::size_t>(key.size(), h.key_len));
        h.checksum = xxh3::hash(extent + e.sums, e.key - e.sums);
        word(header_at(r.index) + offsetof(ObjHeader, checksum)).store(h.checksum, std::memory_order_relaxed);
        std::uint64_t writing = word_of(State::writing, h.epoch);
        if (!word(word_at(r.index)).compare_exchange_strong(writing, word_of(State::ready, h.epoch), std::memory_order_release))
            return false;
        h.state = static_cast<std::uint32_t>(State::ready);
        return true;
    }

    // Tells the owner of an object that is sealed. False if the ring is full: then
    // the owner finds the object by its scan.
    bool announce(const Reservation& r, std::uint32_t owner_rank) const {
        const ObjHeader& h = r.header;
        const Announce a{h.key_hash, owner_rank,     h.epoch,   header_at(r.index), h.payload_base,
                         h.n_pages,  h.page_size, h.bytes_total};
        auto head = half(offsetof(HeapCtl, ann_head)), tail = half(offsetof(HeapCtl, ann_tail));
        std::uint32_t place = head.load();
        do {
            // Between the two loads others may tell and the owner hear: then tail is ahead.
            if (static_cast<std::int32_t>(place - tail.load()) >= static_cast<std::int32_t>(ring_count_)) return false;
        } while (!head.compare_exchange_weak(place, place + 1));
        const std::uint64_t at = ring_ + sizeof(Announce) * (place & (ring_count_ - 1));
        std::memcpy(memory_ + at + 8, reinterpret_cast<const unsigned char*>(&a) + 8, sizeof a - 8);
        word(at).store(a.key_hash, std::memory_order_release);
        return true;
    }

    // Copies a header out; index must be below headers(). Its word comes first, with acquire order.
    ObjHeader load(std::uint32_t index) const {
        const std::uint64_t now = word(word_at(index)).load(std::memory_order_acquire);
        ObjHeader h;
        std::memcpy(&h, memory_ + header_at(index), sizeof h);
        h.state = static_cast<std::uint32_t>(now), h.epoch = static_cast<std::uint32_t>(now >> 32);
        return h;
    }

    std::uint32_t headers() const { return header_count_; }

    // Copies the payload of an object, or as much of it as dst has bytes, from a
    // multiple of segment_bytes on, and checks it: key, epoch and state before and
    // after the copy, and every sum. A part ends with a segment or with the payload.
    // Writes nothing, so that an arena that is mapped for reading will do.
    Error read(const Wanted& w, void* dst, std::size_t bytes, std::uint64_t from = 0) const {
        if (w.index >= header_count_) return Error::gone;
        const ObjHeader h = load(w.index);
        const std::uint64_t ready = word_of(State::ready, w.epoch);
        if (word_of(State{h.state}, h.epoch) != ready || (h.flags & flag_unchecked) != 0 || !lies_inside(h)) return Error::gone;
        const Extent e = extent_of(h.bytes_total, h.key_len);
        const unsigned char* const extent = memory_ + h.payload_base;
        Error found = Error::none;
        if (h.key_hash != hash_key(w.key) || h.key_len != w.key.size() ||
            std::memcmp(extent + e.key, w.key.data(), w.key.size()) != 0) {
            found = Error::foreign;
        } else if (from % segment_bytes != 0 || from > h.bytes_total || bytes > h.bytes_total - from ||
                   (bytes % segment_bytes != 0 && from + bytes != h.bytes_total)) {
            found = Error::argument;
        } else {
            found = copy(h, e, static_cast<unsigned char*>(dst), bytes, from);
        }
        std::atomic_thread_fence(std::memory_order_acquire);
        return word(word_at(w.index)).load(std::memory_order_acquire) == ready ? found : Error::gone;
    }

private:
    static constexpr std::uint32_t max_headers = 1u << 28;
    static constexpr int max_pops = 64;  // that may be lost to others before the owner is asked

    static constexpr bool inside(std::uint64_t base, std::uint64_t bytes, std::uint64_t align, std::uint64_t size) {
        return base >= segment_bytes && base % align == 0 && base <= size && bytes <= size - base;
    }

    // A word or half a word of the arena. Loads need no right to write.
    std::atomic_ref<std::uint64_t> word(std::uint64_t at) const {
        return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(memory_ + at));
    }
    std::atomic_ref<std::uint32_t> half(std::uint64_t at) const {
        return std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(memory_ + at));
    }

    std::uint64_t header_at(std::uint32_t index) const { return headers_ + sizeof(ObjHeader) * index; }
    std::uint64_t word_at(std::uint32_t index) const { return header_at(index) + offsetof(ObjHeader, state); }

    // Writes all of a header but its word.
    void store_header(std::uint32_t index, const ObjHeader& h) const {
        const auto* from = reinterpret_cast<const unsigned char*>(&h);
        constexpr std::size_t before = offsetof(ObjHeader, state), after = offsetof(ObjHeader, last_access);
        std::memcpy(memory_ + header_at(index), from, before);
        std::memcpy(memory_ + header_at(index) + after, from + after, sizeof h - after);
    }

    bool fits(std::uint64_t at, const Extent& e) const {
        return at % e.align == 0 && at >= base_ && at <= limit_ && e.size <= limit_ - at;
    }

    bool lies_inside(const ObjHeader& h) const {
        return h.bytes_total > 0 && h.bytes_total <= limit_ && h.key_len > 0 && h.key_len <= max_key_bytes && h.page_size > 0 &&
               h.n_pages == (h.bytes_total - 1) / h.page_size + 1 &&
               fits(h.payload_base, extent_of(h.bytes_total, h.key_len));
    }

    bool take_room(const Extent& need, std::uint32_t& index, std::uint64_t& at) const {
        for (std::size_t c = class_of(need.size); c < free_classes; ++c) {
            ObjHeader listed;
            if (!take_offer(c, index, listed) || listed.bytes_total < need.size || !fits(listed.payload_base, need)) continue;
            at = listed.payload_base;
            return true;
        }
        auto head = half(offsetof(HeapCtl, hdr_head));
        if (head.load() >= header_count_ || !take_bump(need, at)) return false;
        std::uint32_t next = head.load();
        do {
            if (next >= header_count_) return false;  // the bytes are pending until the owner's scan
        } while (!head.compare_exchange_weak(next, next + 1));
        index = next;
        return true;
    }

    // Takes a header with an extent out of a free list.
    bool take_offer(std::size_t c, std::uint32_t& index, ObjHeader& listed) const {
        auto head = word(offsetof(HeapCtl, free_head) + 8 * c);
        std::uint64_t was = head.load();
        for (int pops = 0; pops < max_pops; ++pops) {
            index = static_cast<std::uint32_t>(was) - 1;
            if (static_cast<std::uint32_t>(was) == 0 || index >= header_count_) return false;
            listed = load(index);
            const std::uint64_t tag = (was >> 32) + 1;
            if (head.compare_exchange_strong(was, tag << 32 | (listed.key_hash & 0xffffffff))) return true;
        }
        return false;
    }

    // Takes bytes that were never given out.
    bool take_bump(const Extent& need, std::uint64_t& at) const {
        auto bump = word(offsetof(HeapCtl, bump_ptr));
        std::uint64_t was = bump.load();
        do {
            at = round_up(was, need.align);
            if (was < base_ || at < was || !fits(at, need)) return false;
        } while (!bump.compare_exchange_weak(was, at + round_up(need.size, granule_bytes)));
        return true;
    }

    // The sum of the segment that begins at a place of a payload.
    static std::uint64_t sum_of(const unsigned char* payload, std::uint64_t bytes, std::uint64_t at) {
        return xxh3::hash(payload + at, std::min<std::uint64_t>(segment_bytes, bytes - at));
    }

    // Copies, and sums what was copied, segment by segment, while it is in the first
    // cache. A whole payload is good if its sums have the header's checksum; a part,
    // if the sums behind the payload have it, and its own are among them.
    Error copy(const ObjHeader& h, const Extent& e, unsigned char* dst, std::size_t bytes, std::uint64_t from) const {
        const unsigned char* const extent = memory_ + h.payload_base;
        const bool whole = bytes == h.bytes_total;
        std::vector<std::uint64_t> sums((e.key - e.sums) / 8);
        if (!whole) std::memcpy(sums.data(), extent + e.sums, e.key - e.sums);
        for (std::size_t at = 0; at < bytes; at += segment_bytes) {
            std::memcpy(dst + at, extent + from + at, std::min<std::size_t>(segment_bytes, bytes - at));
            const std::uint64_t sum = sum_of(dst, bytes, at);
            std::uint64_t& kept = sums[(from + at) / segment_bytes];
            if (!whole && kept != sum) return Error::torn;
            kept = sum;
        }
        return xxh3::hash(sums.data(), 8 * sums.size()) == h.checksum ? Error::none : Error::torn;
    }

    unsigned char* memory_ = nullptr;
    std::uint64_t base_ = 0, limit_ = 0, headers_ = 0, ring_ = 0;
    std::uint32_t header_count_ = 0, ring_count_ = 0;
};

}  // namespace meridian::store

#endif
