// The C++ end of the cross-language test:
//
//    mrdn_tool encode TIER < body > frame
//    mrdn_tool inspect < frames
//
// inspect prints one line a frame: offset, tier, body_len, checksum and ok or a
// verdict. After a bad checksum it goes on with the next frame; any other verdict
// has "-" for the three in the middle and is the last. Exit codes: 0 ok,
// 1 failure, 2 usage.

#include <cstdio>
#include <iostream>
#include <iterator>
#include <string_view>

#include <meridian/mrdn.hpp>

namespace mrdn = meridian::mrdn;

namespace {

int usage() {
    std::fputs("usage: mrdn_tool encode think_complete|think_active|output_critical < body > frame\n"
               "       mrdn_tool inspect < frames\n",
               stderr);
    return 2;
}

int encode(mrdn::Tier tier) {
    const std::vector<std::uint8_t> body{std::istreambuf_iterator<char>(std::cin), {}};
    mrdn::Error error = mrdn::Writer(std::cout).write(tier, body.data(), body.size());
    if (error == mrdn::Error::none && !std::cout.flush()) error = mrdn::Error::io;
    if (error == mrdn::Error::none) return 0;
    std::fprintf(stderr, "mrdn_tool: cannot write the frame: %s\n", mrdn::name(error));
    return 1;
}

void print_header(const mrdn::Header& header) {
    std::printf(" %s %llu ", mrdn::name(header.tier), static_cast<unsigned long long>(header.body_len));
    for (const unsigned byte : header.checksum) std::printf("%02x", byte);
}

int inspect() {
    mrdn::Reader reader(std::cin);
    mrdn::Frame frame;
    int status = 0;
    for (;;) {
        const auto start = static_cast<unsigned long long>(reader.offset());
        const bool whole = reader.next(frame);
        const mrdn::Error error = reader.error();
        if (!whole && error == mrdn::Error::none) return status;
        if (!whole) status = 1;
        std::printf("%llu", start);
        if (whole || error == mrdn::Error::checksum)
            print_header(frame.header);
        else
            std::printf(" - - -");
        std::printf(" %s\n", whole ? "ok" : mrdn::name(error));
        if (!whole && error != mrdn::Error::checksum) return status;
    }
}

}  // namespace

int main(int argc, char** argv) {
    std::ios::sync_with_stdio(false);
    const std::string_view command = argc > 1 ? argv[1] : "";
    if (command == "inspect" && argc == 2) return inspect();
    mrdn::Tier tier{};
    if (command == "encode" && argc == 3 && mrdn::parse_tier(argv[2], tier)) return encode(tier);
    return usage();
}
