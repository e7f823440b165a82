// Fuzzes the parser. With clang, from the root of the tree:
//
//    clang++ -std=c++17 -g -O1 -fsanitize=fuzzer,address,undefined -I include
//        include/meridian/test/mrdn_fuzz.cpp -o mrdn_fuzz && ./mrdn_fuzz
//
// The first four bytes of an input are the cap, the others are parsed. Without
// clang, mrdn_test holds the same property against mutated frames.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include <meridian/mrdn.hpp>

namespace {

// Bytes and stream agree on every input, and a frame that parses is what it
// encodes to. Returns which part of this does not hold, or nullptr.
const char* broken_property(const std::uint8_t* input, std::size_t size, std::uint32_t max_body) {
    using namespace meridian::mrdn;

    Frame frame;
    std::size_t consumed = 0;
    const Error error = parse(input, size, max_body, frame, consumed);

    std::istringstream stream(std::string(reinterpret_cast<const char*>(input), size));
    Reader reader(stream, max_body);
    Frame streamed;
    const bool read = reader.next(streamed);

    if (error != Error::none) {
        if (consumed != 0) return "a refused frame consumes bytes";
        const Error expected = size == 0 ? Error::none : error;  // a stream may end between frames
        return read || reader.error() != expected ? "bytes are refused, the stream says otherwise" : nullptr;
    }
    if (!read || reader.offset() != consumed || encode(streamed.header) != encode(frame.header) ||
        !std::equal(frame.body, frame.body + frame.size(), streamed.body))
        return "bytes are accepted, the stream says otherwise";

    std::vector<std::uint8_t> again;
    if (append_frame(again, frame.header.tier, frame.body, frame.size()) != Error::none ||
        again.size() != consumed || !std::equal(again.begin(), again.end(), input))
        return "a frame that parses is not what it encodes to";
    return nullptr;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 4) return 0;
    const std::uint32_t max_body = meridian::mrdn::detail::load_u32(data);
    if (const char* broken = broken_property(data + 4, size - 4, max_body)) {
        std::fprintf(stderr, "%s\n", broken);
        std::abort();
    }
    return 0;
}
