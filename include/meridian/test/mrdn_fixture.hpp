// What mrdn_test stands on: a count of allocations, one test's result, inputs
// that end exactly, streams that stutter and break, the shared vectors. For one
// translation unit only, since it replaces operator new.

#ifndef MERIDIAN_TEST_MRDN_FIXTURE_HPP
#define MERIDIAN_TEST_MRDN_FIXTURE_HPP

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <new>
#include <sstream>
#include <stdexcept>
#include <streambuf>
#include <string>

#include <meridian/mrdn.hpp>

namespace {

// Counts what passes through operator new.
struct Allocations {
    std::size_t count = 0;
    std::size_t largest = 0;
} allocations;

}  // namespace

// Not inlined, because gcc would then take free for a mistake.
[[gnu::noinline]] void* operator new(std::size_t size) {
    ++allocations.count;
    allocations.largest = std::max(allocations.largest, size);
    if (void* memory = std::malloc(size)) return memory;
    std::abort();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

using Bytes = std::vector<std::uint8_t>;
using meridian::mrdn::Error;
using meridian::mrdn::Frame;
using meridian::mrdn::Tier;

std::string directory;  // testdata/mrdn

// A piece of a failed check's explanation: text, or a number.
struct Part {
    Part(const char* characters) : text(characters) {}
    Part(const std::string& characters) : text(characters.c_str()) {}
    Part(std::uint64_t value) : number(value) {}
    const char* text = nullptr;
    std::uint64_t number = 0;
};

// One test's result: its first failed check, and how many there were. A test
// that checked nothing has failed.
class Test {
public:
    void check(bool held, std::initializer_list<Part> parts) {
        ++checks_;
        if (held || failures_++ > 0) return;
        for (const Part& part : parts) first_ += part.text ? part.text : std::to_string(part.number);
    }

    bool report(const char* name) const {
        if (checks_ > 0 && failures_ == 0) {
            std::printf("PASS %s\n", name);
            return true;
        }
        std::printf("FAIL %s: %s (%zu of %zu checks failed)\n", name, checks_ ? first_.c_str() : "checked nothing",
                    failures_, checks_);
        return false;
    }

private:
    std::size_t checks_ = 0;
    std::size_t failures_ = 0;
    std::string first_;
};

// A copy that ends exactly where its allocation ends, so that a sanitizer sees
// any read past it, and that is aligned to nothing.
class Exact {
public:
    Exact(const std::uint8_t* bytes, std::size_t size) : memory_(new std::uint8_t[size + 1]), size_(size) {
        std::copy_n(bytes, size, memory_.get() + 1);
    }
    explicit Exact(const Bytes& bytes) : Exact(bytes.data(), bytes.size()) {}
    const std::uint8_t* data() const { return memory_.get() + 1; }
    std::size_t size() const { return size_; }

private:
    std::unique_ptr<std::uint8_t[]> memory_;
    std::size_t size_;
};

// A stream buffer over bytes that gives them out piece by piece and then ends or,
// if it breaks, throws as a failing device does.
class Source : public std::streambuf {
public:
    Source(const Bytes& bytes, std::size_t piece, bool breaks = false)
        : bytes_(bytes.begin(), bytes.end()), piece_(piece), breaks_(breaks) {}

protected:
    int_type underflow() override {
        if (given_ == bytes_.size()) {
            if (breaks_) throw std::runtime_error("disk on fire");
            return traits_type::eof();
        }
        char* start = bytes_.data() + given_;
        given_ = std::min(bytes_.size(), given_ + piece_);
        setg(start, start, bytes_.data() + given_);
        return traits_type::to_int_type(*start);
    }

private:
    std::vector<char> bytes_;
    std::size_t piece_;
    bool breaks_;
    std::size_t given_ = 0;
};

// A stream buffer that takes so many bytes and no more.
class Sink : public std::streambuf {
public:
    explicit Sink(std::size_t room) : room_(static_cast<std::streamsize>(room)) {}

protected:
    std::streamsize xsputn(const char*, std::streamsize size) override {
        const std::streamsize taken = std::min(size, room_);
        room_ -= taken;
        return taken;
    }

private:
    std::streamsize room_;
};

Bytes pattern_body(std::size_t size) {
    Bytes body(size);
    for (std::size_t i = 0; i < size; ++i) body[i] = static_cast<std::uint8_t>(i % 251);
    return body;
}

Bytes text(const char* characters) { return Bytes(characters, characters + std::strlen(characters)); }

Bytes joined(Bytes first, const Bytes& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
}

Bytes bytes_of(const std::ostringstream& stream) {
    const std::string characters = stream.str();
    return Bytes(characters.begin(), characters.end());
}

Bytes frame_of(Tier tier, const Bytes& body) {
    Bytes frame;
    if (meridian::mrdn::append_frame(frame, tier, body.data(), body.size()) != Error::none) std::abort();
    return frame;
}

bool holds(const Frame& frame, Tier tier, const Bytes& body) {
    return frame.header.tier == tier && frame.size() == body.size() &&
           std::equal(body.begin(), body.end(), frame.body);
}

std::string hex(const std::uint8_t* bytes, std::size_t size) {
    std::string digits;
    for (std::size_t i = 0; i < size; ++i)
        digits.append({"0123456789abcdef"[bytes[i] >> 4], "0123456789abcdef"[bytes[i] & 15]});
    return digits;
}

Bytes from_hex(const std::string& digits) {
    Bytes bytes;
    if (digits == "-") return bytes;
    for (std::size_t i = 0; i < digits.size(); i += 2)
        bytes.push_back(static_cast<std::uint8_t>(std::stoul(digits.substr(i, 2), nullptr, 16)));
    return bytes;
}

std::vector<std::vector<std::string>> vectors(const char* file) {
    std::ifstream stream(directory + "/" + file);
    std::vector<std::vector<std::string>> lines;
    for (std::string line; std::getline(stream, line);) {
        if (line.empty() || line[0] == '#') continue;
        std::istringstream words(line);
        lines.emplace_back(std::istream_iterator<std::string>(words), std::istream_iterator<std::string>());
    }
    return lines;
}

std::string contents(const std::string& path) {
    std::ifstream stream(directory + "/../../include/meridian/" + path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

Error parse_exactly(const Bytes& bytes, std::uint32_t max_body = meridian::mrdn::default_max_body) {
    const Exact exact(bytes);
    Frame frame;
    std::size_t consumed = 0;
    return meridian::mrdn::parse(exact.data(), exact.size(), max_body, frame, consumed);
}

}  // namespace

#endif  // MERIDIAN_TEST_MRDN_FIXTURE_HPP
