// MRDN v1 frames in C++17: header-only, standard library only, no exceptions of
// its own. One frame carries one KV block, or any other body:
//
//    0       4         8          12     13      16               32
//    +-------+---------+----------+------+-------+----------------+------
//    | MRDN  | version | body_len | tier | 0 0 0 | BLAKE3-128     | body
//    |       | u32 = 1 | u32      | u8   | pad   | of the body    |
//    +-------+---------+----------+------+-------+----------------+------
//
// Integers are little-endian on every machine. docs/wire.md is the definition;
// the vectors in testdata/mrdn hold this header, Go and Python together.
//
// The checksum covers the body, not the header. Every header field but the tier
// is checked by value; a tier that turns into another valid tier is not seen
// here, so treat a tier that came from afar as a hint.
//
// A parser never reads past its input and never allocates by a length it has
// not checked against its cap and its input.

#ifndef MERIDIAN_MRDN_HPP
#define MERIDIAN_MRDN_HPP

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <limits>
#include <ostream>
#include <string_view>
#include <vector>

namespace meridian::mrdn {

inline constexpr std::array<std::uint8_t, 4> frame_magic{'M', 'R', 'D', 'N'};
inline constexpr std::uint32_t frame_version = 1;
inline constexpr std::size_t header_size = 32;
inline constexpr std::size_t checksum_size = 16;
// The cap on a body's length where the caller names none.
inline constexpr std::uint32_t default_max_body = 256u << 20;

// How soon a block may leave memory: lower leaves first.
enum class Tier : std::uint8_t { think_complete = 0, think_active = 1, output_critical = 2 };

inline constexpr std::array<Tier, 3> tiers{Tier::think_complete, Tier::think_active, Tier::output_critical};

inline constexpr std::array<const char*, tiers.size()> tier_names{"think_complete", "think_active", "output_critical"};

constexpr bool valid(Tier tier) { return static_cast<std::size_t>(tier) < tiers.size(); }

constexpr const char* name(Tier tier) {
    return valid(tier) ? tier_names[static_cast<std::size_t>(tier)] : "unknown";
}

// Reads what name writes; false, and tier untouched, for any other text.
inline bool parse_tier(std::string_view text, Tier& tier) {
    for (const Tier known : tiers) {
        if (text != name(known)) continue;
        tier = known;
        return true;
    }
    return false;
}

// What can be wrong with a frame. Checks run in this order, in all three
// implementations, so that one bad input has one verdict everywhere. The last
// value is no verdict on bytes: a stream failed before it gave or took them.
enum class [[nodiscard]] Error { none, truncated, magic, version, pad, tier, too_large, checksum, io };

constexpr const char* name(Error error) {
    switch (error) {
    case Error::none: return "none";
    case Error::truncated: return "truncated";
    case Error::magic: return "magic";
    case Error::version: return "version";
    case Error::pad: return "pad";
    case Error::tier: return "tier";
    case Error::too_large: return "too_large";
    case Error::checksum: return "checksum";
    case Error::io: return "io";
    }
    return "unknown";
}

using Checksum = std::array<std::uint8_t, checksum_size>;

struct Header {
    Tier tier{};
    std::uint32_t body_len = 0;
    Checksum checksum{};
};

// A whole frame. The body is a view: it belongs to the owner of the bytes it was
// parsed from.
struct Frame {
    Header header;
    const std::uint8_t* body = nullptr;

    std::size_t size() const { return header.body_len; }
};

namespace detail {

constexpr std::uint32_t load_u32(const std::uint8_t* bytes) {
    return std::uint32_t{bytes[0]} | std::uint32_t{bytes[1]} << 8 | std::uint32_t{bytes[2]} << 16 |
           std::uint32_t{bytes[3]} << 24;
}

constexpr void store_u32(std::uint8_t* bytes, std::uint32_t value) {
    for (std::size_t i = 0; i < 4; ++i) bytes[i] = static_cast<std::uint8_t>(value >> (8 * i));
}

// BLAKE3 in hash mode, as c2sp.org/BLAKE3 defines it: chunks of 1024 bytes are
// the leaves of a binary tree; a chunk is compressed block by block of 64 bytes,
// a parent is one compression of its children's chaining values.
//
// Every word here has one value per lane. Lanes are compressions that go side by
// side and never touch, which compilers turn into vector instructions.
template <std::size_t Lanes>
struct ChainingValue {
    std::uint32_t word[8][Lanes];
};
template <std::size_t Lanes>
struct Block {
    std::uint32_t word[16][Lanes];
};
template <std::size_t Lanes>
using Counter = std::array<std::uint64_t, Lanes>;

inline constexpr std::size_t block_size = 64;
inline constexpr std::size_t chunk_size = 1024;

inline constexpr std::uint32_t chunk_start = 1;
inline constexpr std::uint32_t chunk_end = 2;
inline constexpr std::uint32_t parent = 4;
inline constexpr std::uint32_t root = 8;

inline constexpr std::array<std::uint32_t, 8> initial{
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

inline constexpr std::size_t rounds = 7;
using Order = std::array<std::size_t, 16>;

// Which message word each round takes where: the same permutation, once more
// for each round.
constexpr std::array<Order, rounds> message_orders() {
    constexpr Order permutation{2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8};
    std::array<Order, rounds> orders{};
    for (std::size_t i = 0; i < 16; ++i) orders[0][i] = i;
    for (std::size_t round = 1; round < rounds; ++round)
        for (std::size_t i = 0; i < 16; ++i) orders[round][i] = orders[round - 1][permutation[i]];
    return orders;
}

constexpr std::uint32_t rotate_right(std::uint32_t value, int bits) { return value >> bits | value << (32 - bits); }

template <std::size_t Lanes>
void mix(Block<Lanes>& state, std::size_t a, std::size_t b, std::size_t c, std::size_t d,
         const std::uint32_t (&first)[Lanes], const std::uint32_t (&second)[Lanes]) {
    for (std::size_t lane = 0; lane < Lanes; ++lane) {
        std::uint32_t va = state.word[a][lane], vb = state.word[b][lane];
        std::uint32_t vc = state.word[c][lane], vd = state.word[d][lane];
        va += vb + first[lane];
        vd = rotate_right(vd ^ va, 16);
        vc += vd;
        vb = rotate_right(vb ^ vc, 12);
        va += vb + second[lane];
        vd = rotate_right(vd ^ va, 8);
        vc += vd;
        vb = rotate_right(vb ^ vc, 7);
        state.word[a][lane] = va, state.word[b][lane] = vb;
        state.word[c][lane] = vc, state.word[d][lane] = vd;
    }
}

template <std::size_t Lanes>
void compress(ChainingValue<Lanes>& chaining, const Block<Lanes>& message, const Counter<Lanes>& counter,
              std::size_t size, std::uint32_t flags) {
    static constexpr std::array<Order, rounds> orders = message_orders();
    Block<Lanes> state;
    for (std::size_t lane = 0; lane < Lanes; ++lane) {
        for (std::size_t i = 0; i < 8; ++i) state.word[i][lane] = chaining.word[i][lane];
        for (std::size_t i = 0; i < 4; ++i) state.word[8 + i][lane] = initial[i];
        state.word[12][lane] = static_cast<std::uint32_t>(counter[lane]);
        state.word[13][lane] = static_cast<std::uint32_t>(counter[lane] >> 32);
        state.word[14][lane] = static_cast<std::uint32_t>(size);
        state.word[15][lane] = flags;
    }
    for (const Order& order : orders) {
        mix(state, 0, 4, 8, 12, message.word[order[0]], message.word[order[1]]);
        mix(state, 1, 5, 9, 13, message.word[order[2]], message.word[order[3]]);
        mix(state, 2, 6, 10, 14, message.word[order[4]], message.word[order[5]]);
        mix(state, 3, 7, 11, 15, message.word[order[6]], message.word[order[7]]);
        mix(state, 0, 5, 10, 15, message.word[order[8]], message.word[order[9]]);
        mix(state, 1, 6, 11, 12, message.word[order[10]], message.word[order[11]]);
        mix(state, 2, 7, 8, 13, message.word[order[12]], message.word[order[13]]);
        mix(state, 3, 4, 9, 14, message.word[order[14]], message.word[order[15]]);
    }
    for (std::size_t i = 0; i < 8; ++i)
        for (std::size_t lane = 0; lane < Lanes; ++lane)
            chaining.word[i][lane] = state.word[i][lane] ^ state.word[i + 8][lane];
}

template <std::size_t Lanes>
ChainingValue<Lanes> initial_chaining() {
    ChainingValue<Lanes> chaining;
    for (std::size_t i = 0; i < 8; ++i) std::fill_n(chaining.word[i], Lanes, initial[i]);
    return chaining;
}

// Loads one block of each of Lanes chunks that lie one after another. Only a
// lone chunk may have a short block, which is padded with zeros.
template <std::size_t Lanes>
Block<Lanes> load_block(const std::uint8_t* bytes, std::size_t size) {
    std::array<std::uint8_t, block_size> padded{};
    if (Lanes == 1 && size < block_size) {
        std::copy_n(bytes, size, padded.begin());
        bytes = padded.data();
    }
    Block<Lanes> block;
    for (std::size_t i = 0; i < 16; ++i)
        for (std::size_t lane = 0; lane < Lanes; ++lane)
            block.word[i][lane] = load_u32(bytes + lane * chunk_size + 4 * i);
    return block;
}

// Hashes Lanes chunks that lie one after another. Size is that of each chunk:
// chunk_size, or less for the last chunk of all, which goes alone.
template <std::size_t Lanes>
ChainingValue<Lanes> hash_chunks(const std::uint8_t* bytes, std::size_t size, std::uint64_t index,
                                 std::uint32_t root_flag) {
    Counter<Lanes> counter;
    for (std::size_t lane = 0; lane < Lanes; ++lane) counter[lane] = index + lane;
    ChainingValue<Lanes> chaining = initial_chaining<Lanes>();
    std::size_t done = 0;
    do {
        const std::size_t length = std::min(block_size, size - done);
        const bool last = done + length == size;
        const std::uint32_t flags = (done == 0 ? chunk_start : 0) | (last ? chunk_end | root_flag : 0);
        compress(chaining, load_block<Lanes>(bytes + done, length), counter, length, flags);
        done += length;
    } while (done < size);
    return chaining;
}

// Hashes parents from neighbouring pairs of children.
template <std::size_t Lanes>
ChainingValue<Lanes> hash_parents(const ChainingValue<2 * Lanes>& children, std::uint32_t root_flag) {
    Block<Lanes> message;
    for (std::size_t i = 0; i < 8; ++i)
        for (std::size_t lane = 0; lane < Lanes; ++lane) {
            message.word[i][lane] = children.word[i][2 * lane];
            message.word[i + 8][lane] = children.word[i][2 * lane + 1];
        }
    ChainingValue<Lanes> chaining = initial_chaining<Lanes>();
    compress(chaining, message, Counter<Lanes>{}, block_size, parent | root_flag);
    return chaining;
}

// Hashes the subtree over bytes, whose first chunk has the given index. A left
// child holds the largest power of two of chunks that leaves something to the
// right, so the recursion is as deep as the tree and holds one value a level.
inline ChainingValue<1> hash_tree(const std::uint8_t* bytes, std::size_t size, std::uint64_t index,
                                  std::uint32_t root_flag) {
    if (size <= chunk_size) return hash_chunks<1>(bytes, size, index, root_flag);
    if (size == 16 * chunk_size) {
        const auto chunks = hash_chunks<16>(bytes, chunk_size, index, 0);
        return hash_parents<1>(hash_parents<2>(hash_parents<4>(hash_parents<8>(chunks, 0), 0), 0), root_flag);
    }
    std::size_t left_size = chunk_size;
    while (left_size < size - left_size) left_size *= 2;
    const auto left = hash_tree(bytes, left_size, index, 0);
    const auto right = hash_tree(bytes + left_size, size - left_size, index + left_size / chunk_size, 0);
    ChainingValue<2> children;
    for (std::size_t i = 0; i < 8; ++i) {
        children.word[i][0] = left.word[i][0];
        children.word[i][1] = right.word[i][0];
    }
    return hash_parents<1>(children, root_flag);
}

}  // namespace detail

// Returns the BLAKE3 digest of body, cut to 128 bits.
inline Checksum checksum(const std::uint8_t* body, std::size_t size) {
    const auto digest = detail::hash_tree(body, size, 0, detail::root);
    Checksum sum;
    for (std::size_t i = 0; i < checksum_size / 4; ++i) detail::store_u32(sum.data() + 4 * i, digest.word[i][0]);
    return sum;
}

// Makes the header of a frame around body.
inline Error make_header(Tier tier, const std::uint8_t* body, std::size_t size, Header& header) {
    if (!valid(tier)) return Error::tier;
    if (std::uint64_t{size} > std::numeric_limits<std::uint32_t>::max()) return Error::too_large;
    header = Header{tier, static_cast<std::uint32_t>(size), checksum(body, size)};
    return Error::none;
}

// Returns the header in wire form. A sender that need not have the frame in one
// piece sends this and then the body.
inline std::array<std::uint8_t, header_size> encode(const Header& header) {
    std::array<std::uint8_t, header_size> bytes{};
    std::copy(frame_magic.begin(), frame_magic.end(), bytes.begin());
    detail::store_u32(bytes.data() + 4, frame_version);
    detail::store_u32(bytes.data() + 8, header.body_len);
    bytes[12] = static_cast<std::uint8_t>(header.tier);
    std::copy(header.checksum.begin(), header.checksum.end(), bytes.begin() + 16);
    return bytes;
}

// Appends a whole frame around body, which must not lie in out. On an error out
// is as it was.
inline Error append_frame(std::vector<std::uint8_t>& out, Tier tier, const std::uint8_t* body, std::size_t size) {
    Header header;
    if (const Error error = make_header(tier, body, size, header); error != Error::none) return error;
    const std::size_t start = out.size();
    out.resize(start + header_size + size);
    const auto bytes = encode(header);
    std::copy(bytes.begin(), bytes.end(), out.data() + start);
    std::copy_n(body, size, out.data() + start + header_size);
    return Error::none;
}

// Reads the header at the start of bytes. It does not look at the body. On an
// error header is untouched.
inline Error parse_header(const std::uint8_t* bytes, std::size_t size, std::uint32_t max_body, Header& header) {
    if (size < header_size) return Error::truncated;
    if (!std::equal(frame_magic.begin(), frame_magic.end(), bytes)) return Error::magic;
    if (detail::load_u32(bytes + 4) != frame_version) return Error::version;
    if (bytes[13] != 0 || bytes[14] != 0 || bytes[15] != 0) return Error::pad;
    const Tier tier{bytes[12]};
    if (!valid(tier)) return Error::tier;
    const std::uint32_t body_len = detail::load_u32(bytes + 8);
    if (body_len > max_body) return Error::too_large;
    header.tier = tier;
    header.body_len = body_len;
    std::copy_n(bytes + 16, checksum_size, header.checksum.begin());
    return Error::none;
}

// Checks body, which has header.body_len bytes, against the header's checksum.
inline Error verify(const Header& header, const std::uint8_t* body) {
    return checksum(body, header.body_len) == header.checksum ? Error::none : Error::checksum;
}

// Reads and verifies the frame at the start of bytes. The next frame, if any,
// starts at bytes + consumed. On an error frame is untouched and consumed is 0.
inline Error parse(const std::uint8_t* bytes, std::size_t size, std::uint32_t max_body, Frame& frame,
                   std::size_t& consumed) {
    consumed = 0;
    Header header;
    if (const Error error = parse_header(bytes, size, max_body, header); error != Error::none) return error;
    if (size - header_size < header.body_len) return Error::truncated;
    const std::uint8_t* body = bytes + header_size;
    if (const Error error = verify(header, body); error != Error::none) return error;
    frame = Frame{header, body};
    consumed = header_size + header.body_len;
    return Error::none;
}

// Writes frames to a stream, which must outlive it. What the stream holds back
// is the caller's to flush.
class Writer {
public:
    explicit Writer(std::ostream& stream) : stream_(stream) {}

    // Writes one frame around body, which is not kept.
    Error write(Tier tier, const std::uint8_t* body, std::size_t size) {
        Header header;
        if (const Error error = make_header(tier, body, size, header); error != Error::none) return error;
        const auto bytes = encode(header);
        put(bytes.data(), bytes.size());
        put(body, size);
        return stream_ ? Error::none : Error::io;
    }

private:
    void put(const std::uint8_t* bytes, std::size_t size) {
        stream_.write(reinterpret_cast<const char*>(bytes), static_cast<std::streamsize>(size));
    }

    std::ostream& stream_;
};

// Reads frames from a stream, which must outlive it:
//
//    while (reader.next(frame)) use(frame);
//    if (reader.error() != Error::none) report(reader.error());
class Reader {
public:
    // Bodies longer than max_body are refused.
    explicit Reader(std::istream& stream, std::uint32_t max_body = default_max_body)
        : stream_(stream), max_body_(max_body) {}

    // Reads one frame; its body is valid until the next call. False means that
    // error() says what was wrong, or none: the stream ended between two frames.
    //
    // On Error::checksum the frame holds what was read and the stream stands at
    // the next frame, so that a caller may report and go on. After any other
    // error the frame is empty and the place of the next one unknown.
    bool next(Frame& frame) {
        frame = Frame{};
        error_ = Error::none;
        std::array<std::uint8_t, header_size> bytes;
        const std::size_t got = fill(bytes.data(), bytes.size());
        if (got == 0 && ended()) return false;
        error_ = got < bytes.size() ? shortage() : parse_header(bytes.data(), bytes.size(), max_body_, frame.header);
        if (error_ != Error::none) return false;
        error_ = read_body(frame.header.body_len);
        if (error_ != Error::none) {
            frame = Frame{};
            return false;
        }
        frame.body = buffer_.data();
        error_ = verify(frame.header, frame.body);
        return error_ == Error::none;
    }

    // What stopped the last call of next.
    Error error() const { return error_; }

    // How many bytes have been read: between calls of next, the place where the
    // next frame starts.
    std::uint64_t offset() const { return offset_; }

private:
    // Bounds what a header alone can make us allocate; beyond it the buffer
    // grows only as fast as bytes arrive.
    static constexpr std::size_t first_read = 1 << 20;

    std::size_t fill(std::uint8_t* to, std::size_t size) {
        stream_.read(reinterpret_cast<char*>(to), static_cast<std::streamsize>(size));
        const auto got = static_cast<std::size_t>(stream_.gcount());
        offset_ += got;
        return got;
    }

    bool ended() const { return stream_.eof() && !stream_.bad(); }

    Error shortage() const { return ended() ? Error::truncated : Error::io; }

    Error read_body(std::size_t size) {
        std::size_t have = 0;
        while (have < size) {
            const std::size_t want = std::min(size, std::max({buffer_.size(), 2 * have, first_read}));
            if (want > buffer_.size()) {
                buffer_.reserve(want);  // exactly: resize alone may take up to twice as much
                buffer_.resize(want);
            }
            have += fill(buffer_.data() + have, want - have);
            if (have < want) return shortage();
        }
        return Error::none;
    }

    std::istream& stream_;
    std::uint32_t max_body_;
    std::uint64_t offset_ = 0;
    Error error_ = Error::none;
    std::vector<std::uint8_t> buffer_;
};

}  // namespace meridian::mrdn

#endif  // MERIDIAN_MRDN_HPP
