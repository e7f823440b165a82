// Tests of store.hpp: store_test DIR, where DIR is testdata/store. Prints one line
// a test and fails if any did. Meant to run under address and undefined
// behaviour sanitizers.

#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

// README: begin
#include <meridian/store.hpp>

namespace store = meridian::store;

// Puts an object into a mapped arena without asking its owner. The agent finds it by its
// name: store::object_name(tenant, key).
store::Error put(const store::Arena& arena, std::string_view name, std::string_view payload) {
    store::Reservation room;
    const store::Error error = arena.reserve(name, payload.size(), room);
    if (error != store::Error::none) return error;  // full: ask the owner
    payload.copy(reinterpret_cast<char*>(arena.payload(room)), payload.size());
    if (!arena.seal(room, name)) return store::Error::gone;
    arena.announce(room, 0);
    return store::Error::none;
}
// README: end

namespace {

using store::Arena;
using store::Error;

std::string directory;  // testdata/store
std::string failure;    // the first of the test that runs

void check(bool held, const std::string& what) {
    if (!held && failure.empty()) failure = what;
}

std::vector<std::vector<std::string>> lines(const char* file) {
    std::ifstream in(directory + "/" + file);
    std::vector<std::vector<std::string>> all;
    for (std::string line; std::getline(in, line);) {
        std::istringstream words(line);
        if (line.rfind('#', 0) != 0) all.emplace_back(std::istream_iterator<std::string>(words), std::istream_iterator<std::string>());
    }
    check(!all.empty(), std::string(file) + " is empty or missing");
    return all;
}

std::string pattern(std::uint64_t seed, std::size_t size) {
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(seed + 31 * i + (i >> 8));
    return bytes;
}

std::string from_hex(const std::string& hex) {
    std::string bytes;
    for (std::size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    return bytes;
}

// An arena in memory that ends where it ends, so that a sanitizer sees who reads on.
struct Image {
    std::size_t size = 0;
    std::unique_ptr<std::uint64_t[]> words;
    Arena arena;

    Image() {
        std::ifstream in(directory + "/arena.bin", std::ios::binary);
        const std::string bytes{std::istreambuf_iterator<char>(in), {}};
        size = bytes.size();
        words = std::make_unique<std::uint64_t[]>(size / 8);
        bytes.copy(data(), size);
        check(open() == Error::none, "the image is no arena");
    }
    char* data() const { return reinterpret_cast<char*>(words.get()); }
    Error open() { return Arena::open(words.get(), size, arena); }
    void set(std::size_t at, std::uint32_t value) const { std::memcpy(data() + at, &value, sizeof value); }
};

void hashes() {
    for (const auto& line : lines("hashes.txt")) {
        const std::string payload = pattern(0, std::stoul(line[0]));
        const std::vector<char> exact(payload.begin(), payload.end());
        check(meridian::xxh3::hash(exact.data(), exact.size()) == std::stoull(line[1], nullptr, 16), line[0] + " bytes");
    }
}

void names() {
    for (const auto& line : lines("names.txt")) {
        const std::string tenant(std::stoul(line[0]), 't'), key(std::stoul(line[1]), 'k');
        check(store::object_name(tenant, key) == from_hex(line[2]), line[0] + " bytes of a tenant");
    }
    check(store::object_name("t", "").empty(), "a key without bytes has a name");
}

void extents() {
    for (const auto& line : lines("extents.txt")) {
        const store::Extent e = store::extent_of(std::stoull(line[0]), std::stoull(line[1]));
        check(e.align == std::stoull(line[2]) && e.sums == std::stoull(line[3]) && e.key == std::stoull(line[4]) &&
                  e.size == std::stoull(line[5]),
              line[0] + " bytes with a key of " + line[1]);
    }
}

void objects() {
    const Image image;
    std::map<std::string, int> seen;
    for (const auto& line : lines("objects.txt")) {
        const std::string key = from_hex(line[3]);
        const std::uint64_t from = std::stoull(line[4]);
        std::string dst(std::stoul(line[5]), '\0');
        const store::Wanted wanted{static_cast<std::uint32_t>(std::stoul(line[1])),
                                   static_cast<std::uint32_t>(std::stoul(line[2])), key};
        const Error error = image.arena.read(wanted, dst.data(), dst.size(), from);
        check(store::name(error) == line[0], "header " + line[1] + " from " + line[4] + ": " + store::name(error));
        if (error == Error::none)
            check(dst == pattern(std::stoull(line[6]), from + dst.size()).substr(from), "header " + line[1] + ": wrong bytes");
        ++seen[line[0]];
    }
    check(seen.size() == 4, "not every verdict was seen");
}

void slices() {
    const Image image;
    std::string key;
    for (int n = 0; n < 100; ++n) key += "long key ";
    for (const auto& [from, bytes] : {std::pair{0, 100}, {1, 4096}, {4096, 4095}, {8192, 4114}, {16384, 4096}}) {
        std::string dst(static_cast<std::size_t>(bytes), '\0');
        const Error error = image.arena.read({2, 0, key}, dst.data(), dst.size(), static_cast<std::uint64_t>(from));
        check(error == Error::argument, std::to_string(bytes) + " bytes: " + store::name(error));
    }
}

void bad_layouts() {
    const std::pair<std::size_t, std::uint32_t> changes[] = {{140, 2}, {32, 0}, {32, 1u << 27}, {24, 1}, {112, 7},
                                                             {104, 81920}, {8, 81921}, {0, 81920}, {0, 64}};
    for (const auto& [at, value] : changes) {
        Image image;
        image.set(at, value);
        check(image.open() == Error::layout, std::to_string(value) + " at " + std::to_string(at));
    }
    Arena arena;
    std::uint64_t word = 0;
    check(Arena::open(&word, sizeof word, arena) == Error::layout, "eight bytes");
}

// Headers that were never used are few, the offered one is taken first, and what was
// put is read. The rest of the bytes are not enough.
void puts() {
    const Image image;
    const Arena& arena = image.arena;
    store::Reservation room;
    check(arena.reserve("offered", 2000, room) == Error::none && room.index == 14 && room.header.epoch == 5, "the free list was not used");
    const std::string payload = pattern(3, 2000);
    payload.copy(reinterpret_cast<char*>(arena.payload(room)), payload.size());
    std::string got(2000, '\0');
    check(arena.read({14, 5, "offered"}, got.data(), got.size()) == Error::gone, "read before it was sealed");
    check(arena.seal(room, "offered") && !arena.seal(room, "offered"), "sealed twice, or not at all");
    check(arena.read({14, 5, "offered"}, got.data(), got.size()) == Error::none && got == payload, "wrong bytes of the offered");
    check(put(arena, "bump", "payload") == Error::none, "no room beyond");
    got.resize(7);
    check(arena.read({15, 0, "bump"}, got.data(), got.size()) == Error::none && got == "payload", "wrong bytes of the other");
    check(put(arena, "large", pattern(0, 8192)) == Error::full, "there was room for a large one");
    check(put(arena, "larger", pattern(0, 100000)) == Error::argument, "larger than the arena");
    check(put(arena, "", "payload") == Error::argument && put(arena, "empty", "") == Error::argument, "no key, or no payload");
    check(put(arena, std::string(1025, 'k'), "payload") == Error::argument, "a key of 1025 bytes");
    image.set(136, 96);
    check(put(arena, "above", "payload") == Error::full, "above the watermark");
}

// Four producers race for headers, bytes and the ring; none gets another's.
void races() {
    const Image image;
    std::vector<std::thread> producers;
    std::vector<std::vector<std::uint32_t>> got(4);
    for (std::size_t p = 0; p < got.size(); ++p) {
        producers.emplace_back([&image, &mine = got[p], p] {
            const std::string key(p + 1, 'k'), payload = pattern(p, 50 * (p + 1));
            for (store::Reservation room; image.arena.reserve(key, payload.size(), room) == Error::none;) {
                payload.copy(reinterpret_cast<char*>(image.arena.payload(room)), payload.size());
                if (image.arena.seal(room, key)) mine.push_back(room.index);
                image.arena.announce(room, 0);
            }
        });
    }
    for (auto& producer : producers) producer.join();
    std::map<std::uint32_t, int> taken;
    for (std::size_t p = 0; p < got.size(); ++p) {
        for (const std::uint32_t index : got[p]) {
            check(++taken[index] == 1, "a header was given out twice");
            std::string payload(50 * (p + 1), '\0');
            const Error error = image.arena.read({index, image.arena.load(index).epoch, std::string(p + 1, 'k')}, payload.data(), payload.size());
            check(error == Error::none && payload == pattern(p, payload.size()), "wrong bytes");
        }
    }
    check(taken.size() == 10, std::to_string(taken.size()) + " headers, of 9 that were never used and one that was offered");
    std::uint32_t head = 0;
    std::memcpy(&head, image.data() + 116, sizeof head);
    check(head == 8, "the ring has " + std::to_string(head) + " of 8");
}

// Whatever lies in headers and control block, nothing outside is read or written.
void scribbles() {
    for (std::size_t at = 0; at < 6016; at += at == 140 ? 3956 : 4) {
        for (const std::uint32_t value : {0u, 0x7fffffffu, 0xffffffffu, 0x80000001u}) {
            Image image;
            image.set(at, value);
            std::string dst(8192, '\0');
            for (std::uint32_t index = 0; index < image.arena.headers(); ++index) {
                const store::ObjHeader h = image.arena.load(index);
                (void)image.arena.read({index, h.epoch, "small"}, dst.data(), std::min<std::uint64_t>(dst.size(), h.bytes_total));
            }
            for (int n = 0; n < 3; ++n) (void)put(image.arena, "key", "payload");
            const Error opened = image.open();
            check(opened == Error::none || opened == Error::layout, "opened as something else");
            if (opened == Error::none) (void)put(image.arena, "key", "payload");
        }
    }
}

void readme_example() {
    const auto contents = [](const char* file) {
        std::ifstream in(directory + "/../../include/meridian/" + file);
        return std::string{std::istreambuf_iterator<char>(in), {}};
    };
    const std::string code = contents("test/store_test.cpp"), begin = "// README: begin\n", end = "// README: end\n";
    const std::size_t start = code.find(begin) + begin.size();
    const std::string example = code.substr(start, code.find(end) - start);
    const bool shown = contents("README.md").find("```cpp\n" + example + "```\n") != std::string::npos;
    check(!code.empty() && shown, "README.md does not show the example that is compiled here");
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 2) {
        std::fputs("usage: store_test DIR, where DIR is testdata/store\n", stderr);
        return 2;
    }
    directory = arguments[1];
    const std::pair<const char*, void (*)()> tests[] = {
        {"store.hashes", hashes}, {"store.names", names}, {"store.extents", extents},         {"store.objects", objects}, {"store.slices", slices},
        {"store.puts", puts},     {"store.bad_layouts", bad_layouts}, {"store.races", races},     {"store.scribbles", scribbles},
        {"store.readme_example", readme_example}};
    bool passed = true;
    for (const auto& [test, run] : tests) {
        failure.clear();
        run();
        std::printf("%s %s%s%s\n", failure.empty() ? "PASS" : "FAIL", test, failure.empty() ? "" : ": ", failure.c_str());
        std::fflush(stdout);  // a sanitizer that ends the next test must not take this line along
        passed = passed && failure.empty();
    }
    return passed ? 0 : 1;
}
