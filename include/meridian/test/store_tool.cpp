// The C++ end of the cross-language test of arenas:
//
//    store_tool put FILE < "TENANT KEY BYTES SEED" lines
//    store_tool read FILE < "TENANT KEY BYTES SEED INDEX EPOCH" lines
//
// put stores objects as a producer does that does not ask the owner; read, with a mapping that
// cannot be written, reads them. Each prints one line an object: good, wrong where the
// bytes are others, or the error. Byte i of a payload is seed + 31 i + i / 256. Exit
// codes: 0 ok, 1 failure, 2 usage.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdio>
#include <iostream>
#include <string>

#include <meridian/store.hpp>

namespace store = meridian::store;

namespace {

std::string pattern(std::uint64_t seed, std::size_t size) {
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(seed + 31 * i + (i >> 8));
    return bytes;
}

const char* put(const store::Arena& arena, const std::string& key, const std::string& payload) {
    store::Reservation room;
    const store::Error error = arena.reserve(key, payload.size(), room);
    if (error != store::Error::none) return name(error);
    payload.copy(reinterpret_cast<char*>(arena.payload(room)), payload.size());
    if (!arena.seal(room, key)) return "gone";
    return arena.announce(room, 0) ? "good" : "unannounced";
}

const char* read(const store::Arena& arena, const store::Wanted& wanted, const std::string& payload) {
    std::string got(payload.size(), '\0');
    const store::Error error = arena.read(wanted, got.data(), got.size());
    return error != store::Error::none || got == payload ? name(error) : "wrong";
}

}  // namespace

int main(int count, char** arguments) {
    const std::string verb = count == 3 ? arguments[1] : "";
    if (verb != "put" && verb != "read") {
        std::fputs("usage: store_tool put|read FILE < lines\n", stderr);
        return 2;
    }
    const bool writes = verb == "put";
    const int file = open(arguments[2], writes ? O_RDWR : O_RDONLY);
    struct stat status {};
    if (file < 0 || fstat(file, &status) != 0) return std::perror(arguments[2]), 1;
    const auto size = static_cast<std::size_t>(status.st_size);
    void* const memory = mmap(nullptr, size, PROT_READ | (writes ? PROT_WRITE : 0), MAP_SHARED, file, 0);
    store::Arena arena;
    if (memory == MAP_FAILED || store::Arena::open(memory, size, arena) != store::Error::none) {
        std::fprintf(stderr, "store_tool: %s is no arena\n", arguments[2]);
        return 1;
    }
    std::string tenant, key;
    for (std::uint64_t bytes = 0, seed = 0; std::cin >> tenant >> key >> bytes >> seed;) {
        const std::string name = store::object_name(tenant, key);
        store::Wanted wanted{0, 0, name};
        if (!writes) std::cin >> wanted.index >> wanted.epoch;
        std::puts(writes ? put(arena, name, pattern(seed, bytes)) : read(arena, wanted, pattern(seed, bytes)));
    }
    return 0;
}
