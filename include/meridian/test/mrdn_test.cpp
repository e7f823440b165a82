// Tests of mrdn.hpp: mrdn_test DIR, where DIR is testdata/mrdn. Prints one line
// a test and fails if any did. Meant to run under address and undefined
// behaviour sanitizers.

#include <random>
#include <set>

#include "mrdn_fixture.hpp"
#include "mrdn_fuzz.cpp"

// README: begin
#include <meridian/mrdn.hpp>

namespace mrdn = meridian::mrdn;

// Copies the frames of one tier from one stream to another.
mrdn::Error keep(mrdn::Tier tier, std::istream& in, std::ostream& out) {
    mrdn::Reader reader(in, 64u << 20);  // no body over 64 MiB
    mrdn::Writer writer(out);
    mrdn::Frame frame;
    while (reader.next(frame)) {
        if (frame.header.tier != tier) continue;
        const mrdn::Error error = writer.write(tier, frame.body, frame.size());
        if (error != mrdn::Error::none) return error;
    }
    return reader.error();
}
// README: end

namespace {

using mrdn::Reader;
using mrdn::Writer;

void golden_vectors(Test& test) {
    for (const auto& line : vectors("golden.txt")) {
        const std::string label = line[0] + " of " + line[1] + " bytes: ";
        Tier tier{};
        test.check(mrdn::parse_tier(line[0], tier) && mrdn::name(tier) == line[0], {label, "unknown tier"});
        const Bytes body = pattern_body(std::stoul(line[1]));
        const Bytes want = joined(from_hex(line[2]), body);

        const Exact exact_body(body);
        Bytes got;
        const Error written = mrdn::append_frame(got, tier, exact_body.data(), exact_body.size());
        const std::string header = hex(got.data(), std::min(got.size(), mrdn::header_size));
        test.check(written == Error::none && got == want, {label, "encodes to ", header});
        std::ostringstream out;
        const Error streamed = Writer(out).write(tier, exact_body.data(), exact_body.size());
        test.check(streamed == Error::none && bytes_of(out) == want, {label, "is written as something else"});

        const Exact exact(want);
        Frame frame;
        std::size_t consumed = 0;
        const Error error = mrdn::parse(exact.data(), exact.size(), mrdn::default_max_body, frame, consumed);
        test.check(error == Error::none && holds(frame, tier, body), {label, "parses as ", name(error)});
        test.check(consumed == want.size(), {label, "consumed ", consumed});
        test.check(frame.body == exact.data() + mrdn::header_size, {label, "the body is not a view"});
    }
}

// The digests in golden.txt, and the two worked examples of the specification.
void blake3_digests(Test& test) {
    const auto check = [&](const Bytes& body, const std::string& want) {
        const Exact exact(body);
        const std::string got = hex(mrdn::checksum(exact.data(), exact.size()).data(), mrdn::checksum_size);
        test.check(got == want, {body.size(), " bytes: got ", got, ", want ", want});
    };
    for (const auto& line : vectors("golden.txt")) check(pattern_body(std::stoul(line[1])), line[2].substr(32));
    check(text("IETF"), "83a2de1ee6f4e6ab686889248f4ec0cf");
    Bytes two_chunks(2048, 0xaa);
    std::fill(two_chunks.begin() + 1024, two_chunks.end(), std::uint8_t{0xbb});
    check(two_chunks, "e79d2838915accd3b21bb0ba76b5edf8");
}

void bad_vectors(Test& test) {
    std::set<std::string> seen;
    for (const auto& line : vectors("bad.txt")) {
        const std::string &want = line[0], label = line[1] + ": ";
        const auto max_body = static_cast<std::uint32_t>(std::stoul(line[2]));
        const Bytes bytes = from_hex(line[3]);
        seen.insert(want);

        const Exact exact(bytes);
        Frame frame;
        std::size_t consumed = 1;
        const Error error = mrdn::parse(exact.data(), exact.size(), max_body, frame, consumed);
        test.check(name(error) == want, {label, "got ", name(error), ", want ", want});
        test.check(consumed == 0 && frame.body == nullptr, {label, "consumed ", consumed});

        Source source(bytes, 5);
        std::istream stream(&source);
        Reader reader(stream, max_body);
        const bool read = reader.next(frame);
        // A stream may end between frames.
        const std::string from_stream = bytes.empty() ? "none" : want;
        test.check(!read && name(reader.error()) == from_stream, {label, "stream says ", name(reader.error())});
    }
    test.check(seen.size() == 7, {"bad.txt has ", seen.size(), " of 7 verdicts"});
}

void every_prefix_is_truncated(Test& test) {
    const Bytes whole = frame_of(Tier::think_active, pattern_body(100));
    for (std::size_t size = 0; size < whole.size(); ++size) {
        const Bytes prefix(whole.data(), whole.data() + size);
        const Error error = parse_exactly(prefix);
        test.check(error == Error::truncated, {"first ", size, " bytes: ", name(error)});

        std::istringstream stream(std::string(prefix.begin(), prefix.end()));
        Reader reader(stream);
        Frame frame;
        const bool read = reader.next(frame);
        test.check(!read && reader.error() == (size == 0 ? Error::none : Error::truncated),
                   {"stream of ", size, " bytes: ", name(reader.error())});
        test.check(reader.offset() == size, {"stream of ", size, " bytes stands at ", reader.offset()});
        test.check(frame.body == nullptr && frame.size() == 0, {"stream of ", size, " bytes gives part of a body"});
    }
}

// The one flip that the format cannot show is a tier that becomes another valid
// tier.
void every_flipped_bit_is_seen(Test& test) {
    constexpr std::size_t tier_byte = 12;
    for (const Tier tier : mrdn::tiers) {
        Bytes frame = frame_of(tier, pattern_body(200));
        for (std::size_t bit = 0; bit < 8 * frame.size(); ++bit) {
            const auto flip = static_cast<std::uint8_t>(1u << (bit % 8));
            frame[bit / 8] ^= flip;
            const Error error = parse_exactly(frame);
            const bool hidden = bit / 8 == tier_byte && mrdn::valid(Tier{frame[tier_byte]});
            test.check(hidden == (error == Error::none),
                       {name(tier), ": bit ", bit % 8, " of byte ", bit / 8, ": ", name(error)});
            frame[bit / 8] ^= flip;
        }
    }
}

void parse_leaves_what_follows(Test& test) {
    const Bytes one = text("one"), two = text("two");
    const Exact exact(joined(frame_of(Tier::think_complete, one), frame_of(Tier::output_critical, two)));
    Frame frame;
    std::size_t first_size = 0, second_size = 0;
    Error error = mrdn::parse(exact.data(), exact.size(), 3, frame, first_size);
    test.check(error == Error::none && holds(frame, Tier::think_complete, one), {"first: ", name(error)});
    error = mrdn::parse(exact.data() + first_size, exact.size() - first_size, 3, frame, second_size);
    test.check(error == Error::none && holds(frame, Tier::output_critical, two), {"second: ", name(error)});
    test.check(first_size + second_size == exact.size(), {exact.size() - first_size - second_size, " bytes left"});
}

void encoding_refuses(Test& test) {
    const std::uint8_t byte = 0;
    Bytes out = text("kept");
    std::ostringstream stream;
    test.check(mrdn::append_frame(out, Tier{3}, &byte, 1) == Error::tier, {"tier 3 is encoded"});
    test.check(Writer(stream).write(Tier{3}, &byte, 1) == Error::tier, {"tier 3 is written"});
    if constexpr (sizeof(std::size_t) > 4) {
        constexpr auto size = static_cast<std::size_t>(std::uint64_t{1} << 32);
        test.check(mrdn::append_frame(out, Tier::think_active, &byte, size) == Error::too_large, {"4 GiB encoded"});
        test.check(Writer(stream).write(Tier::think_active, &byte, size) == Error::too_large, {"4 GiB written"});
    }
    test.check(out == text("kept") && stream.str().empty(), {"a refused frame left bytes behind"});
    Tier tier = Tier::think_active;
    test.check(!mrdn::parse_tier("think", tier) && tier == Tier::think_active, {"\"think\" is a tier"});
}

void stream_round_trip(Test& test) {
    const std::vector<Bytes> bodies{{}, {7}, pattern_body(16 << 10), pattern_body(3 << 20), text("last")};
    std::ostringstream out;
    Writer writer(out);
    for (std::size_t i = 0; i < bodies.size(); ++i)
        test.check(writer.write(mrdn::tiers[i % 3], bodies[i].data(), bodies[i].size()) == Error::none, {"frame ", i});
    Source source(bytes_of(out), 1000);
    std::istream in(&source);
    Reader reader(in);
    Frame frame;
    std::uint64_t offset = 0;
    for (std::size_t i = 0; i < bodies.size(); ++i) {
        test.check(reader.offset() == offset, {"frame ", i, " starts at ", offset, ", not ", reader.offset()});
        const bool read = reader.next(frame);
        test.check(read && holds(frame, mrdn::tiers[i % 3], bodies[i]), {"frame ", i, ": ", name(reader.error())});
        offset += mrdn::header_size + bodies[i].size();
    }
    for (int again = 0; again < 2; ++again) {
        const bool read = reader.next(frame);
        test.check(!read && reader.error() == Error::none, {"at the end: ", name(reader.error())});
        test.check(frame.body == nullptr && frame.size() == 0, {"the last frame outlives the end"});
    }
}

void stream_goes_on_after_a_bad_checksum(Test& test) {
    Bytes damaged = frame_of(Tier::think_active, text("abc"));
    damaged.back() ^= 1;
    Source source(joined(damaged, frame_of(Tier::output_critical, text("def"))), 1000);
    std::istream in(&source);
    Reader reader(in);
    Frame frame;
    const bool accepted = reader.next(frame);
    test.check(!accepted && reader.error() == Error::checksum, {"first: ", name(reader.error())});
    test.check(holds(frame, Tier::think_active, text("abb")), {"the bad frame does not hold what was read"});
    const bool went_on = reader.next(frame);
    test.check(went_on && holds(frame, Tier::output_critical, text("def")), {"second: ", name(reader.error())});
}

void stream_failure_is_no_end(Test& test) {
    const Bytes whole = frame_of(Tier::think_active, pattern_body(100));
    for (const std::size_t size : {std::size_t{0}, std::size_t{10}, mrdn::header_size, mrdn::header_size + 50}) {
        Source source(Bytes(whole.data(), whole.data() + size), 7, true);
        std::istream in(&source);
        Reader reader(in);
        Frame frame;
        const bool read = reader.next(frame);
        test.check(!read && reader.error() == Error::io, {"after ", size, ": ", name(reader.error())});
    }
    std::ifstream missing(directory + "/no_such_file");
    Reader reader(missing);
    Frame frame;
    const bool read = reader.next(frame);
    test.check(!read && reader.error() == Error::io, {"a missing file: ", name(reader.error())});
    for (const std::size_t room : {0u, 31u, 32u, 34u, 35u}) {
        Sink sink(room);
        std::ostream out(&sink);
        const Error error = Writer(out).write(Tier::think_active, text("abc").data(), 3);
        test.check(error == (room == 35 ? Error::none : Error::io), {"room for ", room, ": ", name(error)});
    }
}

// A header that promises much and brings little must not cost much.
void allocation_follows_arrival(Test& test) {
    constexpr std::size_t mib = 1 << 20;
    const auto largest_allocation = [&](std::uint32_t promised, std::size_t arrives, Error want) {
        const auto header = mrdn::encode({Tier::think_active, promised, {}});
        Source source(joined(Bytes(header.begin(), header.end()), Bytes(arrives)), 1 << 16);
        std::istream in(&source);
        Reader reader(in, 0xffffffff);
        Frame frame;
        allocations = {};
        const bool read = reader.next(frame);
        const std::size_t largest = allocations.largest;
        test.check(!read && reader.error() == want, {promised, " promised: ", name(reader.error())});
        return largest;
    };
    for (const std::uint32_t promised : {200u << 20, 0xffffffffu}) {
        const std::size_t nothing = largest_allocation(promised, 0, Error::truncated);
        test.check(nothing <= mib, {"an empty promise allocated ", nothing, " bytes"});
        const std::size_t some = largest_allocation(promised, 3 * mib, Error::truncated);
        test.check(some >= 3 * mib && some <= 6 * mib, {"3 MiB of a promise allocated ", some, " bytes"});
    }
    const std::size_t all = largest_allocation(5 * mib, 5 * mib, Error::checksum);
    test.check(all == 5 * mib, {"a body of 5 MiB allocated ", all, " bytes"});
}

void warm_paths_do_not_allocate(Test& test) {
    const Bytes body = pattern_body(16 << 10);
    const Bytes whole = frame_of(Tier::think_active, body);
    Bytes out;
    out.reserve(whole.size());
    Frame frame;
    std::size_t consumed = 0;
    allocations = {};
    const Error written = mrdn::append_frame(out, Tier::think_active, body.data(), body.size());
    const Error parsed = mrdn::parse(out.data(), out.size(), mrdn::default_max_body, frame, consumed);
    const std::size_t in_memory = allocations.count;
    test.check(written == Error::none && parsed == Error::none, {name(written), ", ", name(parsed)});
    test.check(in_memory == 0, {"encode and parse allocate ", in_memory, " times"});

    Source source(joined(whole, whole), 1000);
    std::istream in(&source);
    Reader reader(in);
    const bool first = reader.next(frame);
    allocations = {};
    const bool second = reader.next(frame);
    const std::size_t in_stream = allocations.count;
    test.check(first && second && in_stream == 0, {"a warm reader allocates ", in_stream, " times"});
}

// The fuzzer's property, on frames mutated from a fixed seed.
void mutated_frames_agree(Test& test) {
    std::mt19937 random(1);
    const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random()) % limit; };
    std::vector<Bytes> seeds;
    for (const auto& line : vectors("bad.txt")) seeds.push_back(from_hex(line[3]));
    for (const std::size_t size : {0u, 3u, 100u, 1500u})
        seeds.push_back(frame_of(mrdn::tiers[size % 3], pattern_body(size)));
    std::size_t accepted = 0;
    for (std::size_t turn = 0; turn < 10000; ++turn) {
        Bytes bytes = seeds[below(seeds.size())];
        for (std::size_t flips = below(3); flips > 0 && !bytes.empty(); --flips)
            bytes[below(bytes.size())] ^= static_cast<std::uint8_t>(1u << below(8));
        if (below(4) == 0) bytes.resize(below(bytes.size() + 8));
        const std::uint32_t caps[] = {0, 3, 100, mrdn::default_max_body, 0xffffffff};
        const std::uint32_t max_body = caps[below(5)];
        const Exact exact(bytes);
        const char* broken = broken_property(exact.data(), exact.size(), max_body);
        test.check(!broken, {broken ? broken : "", ": cap ", max_body, ", ", hex(bytes.data(), bytes.size())});
        if (parse_exactly(bytes, max_body) == Error::none) ++accepted;
    }
    test.check(accepted > 100, {"only ", accepted, " mutated frames were good ones"});
}

void readme_example(Test& test) {
    const std::string code = contents("test/mrdn_test.cpp"), begin = "// README: begin\n", end = "// README: end\n";
    const std::size_t start = code.find(begin) + begin.size();
    const std::string example = code.substr(start, code.find(end) - start);
    const bool shown = contents("README.md").find("```cpp\n" + example + "```\n") != std::string::npos;
    test.check(!code.empty() && shown, {"README.md does not show the example that is compiled here"});

    const Bytes wanted = frame_of(Tier::output_critical, text("keep me"));
    Source source(joined(frame_of(Tier::think_complete, text("not me")), wanted), 10);
    std::istream in(&source);
    std::ostringstream out;
    const Error error = keep(Tier::output_critical, in, out);
    test.check(error == Error::none && bytes_of(out) == wanted, {"the example ends with ", name(error)});
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fputs("usage: mrdn_test DIR, where DIR is testdata/mrdn\n", stderr);
        return 2;
    }
    directory = argv[1];
    bool passed = true;
    const auto run = [&](const char* name, void (*body)(Test&)) {
        Test test;
        body(test);
        passed = test.report(name) && passed;
        std::fflush(stdout);  // a sanitizer that ends the next test must not take this line along
    };
    run("golden_vectors", golden_vectors);
    run("blake3_digests", blake3_digests);
    run("bad_vectors", bad_vectors);
    run("every_prefix_is_truncated", every_prefix_is_truncated);
    run("every_flipped_bit_is_seen", every_flipped_bit_is_seen);
    run("parse_leaves_what_follows", parse_leaves_what_follows);
    run("encoding_refuses", encoding_refuses);
    run("stream_round_trip", stream_round_trip);
    run("stream_goes_on_after_a_bad_checksum", stream_goes_on_after_a_bad_checksum);
    run("stream_failure_is_no_end", stream_failure_is_no_end);
    run("allocation_follows_arrival", allocation_follows_arrival);
    run("warm_paths_do_not_allocate", warm_paths_do_not_allocate);
    run("mutated_frames_agree", mutated_frames_agree);
    run("readme_example", readme_example);
    return passed ? 0 : 1;
}
