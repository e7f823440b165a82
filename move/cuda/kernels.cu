// The kernels: copies in strided runs, XXH3-64 of every segment of 4 KiB, or both
// in one pass. moves.go makes the rows that they read, and says what a launch is;
// kernels.sh makes kernels.ptx of this file. Every parameter has 64 bits.
//
//   copy…      moves bytes; sum… hashes the source; copysum… does both; placed… hashes
//              what lies at the destination
//   …_whole    every segment lies in one piece on both sides: pointers, no walk
//   …16 8 4 1  what all addresses, lengths and strides are multiples of
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

// Row is count pieces of length bytes, strides apart. The last row of a table is
// a sentinel that no walk leaves.
struct Row {
  u64 src, dst, srcStride, dstStride;
  u32 start, length, count, unused;  // start counts bytes of the launch
};

// Shift is how far from the rows' own places a round of them lies.
struct Shift {
  u64 src, dst;
};

static constexpr u32 segment = 4096;

// Place is where a segment begins: a byte of a row, and the shift of its round.
struct Place {
  const Row* row;
  u32 at;
  Shift shift;
};

// Table is what a launch reads: rows, and how the row of a segment is found. Where
// every row has as many segments, each says how many; where each is 0, first says of
// every segment in which row it begins. Where all rows come several times, each time
// elsewhere, period is how many segments they are, and shifts says where.
struct Table {
  const Row* rows;
  const u32* first;
  const Shift* shifts;
  u32 each, period;

  __device__ __forceinline__ Place find(u32 s) const {
    Shift shift = {0, 0};
    if (period) {
      const u32 round = s / period;
      s -= round * period;
      shift = shifts[round];
    }
    return {rows + (each ? s / each : first[s]), s * segment, shift};
  }
};

// Walk is a place in the launch's bytes: piece by piece, row by row. PLACED reads where
// others write.
template <bool PLACED>
struct Walk {
  const Row* row;
  Shift shift;
  u64 src, dst;  // of the piece
  u32 piece, count, within, length;

  __device__ __forceinline__ void enter() {
    if (!PLACED) src = row->src + shift.src + piece * row->srcStride;
    dst = row->dst + shift.dst + piece * row->dstStride;
  }
  __device__ __forceinline__ void seek(const Place& from, u32 off) {
    const u32 at = from.at + off;
    row = from.row;
    shift = from.shift;
    u32 local = at - row->start;
    length = row->length;
    count = row->count;
    piece = local / length;
    while (piece >= count) {
      row++;
      local = at - row->start;
      length = row->length;
      count = row->count;
      piece = local / length;
    }
    within = local - piece * length;
    enter();
  }
  __device__ __forceinline__ void skip(u32 bytes) {
    within += bytes;
    while (within >= length) {
      within -= length;
      if (++piece == count) {
        row++;
        length = row->length;
        count = row->count;
        piece = 0;
      }
      enter();
    }
  }
  __device__ __forceinline__ u64 from() const { return (PLACED ? dst : src) + within; }
  __device__ __forceinline__ u64 to() const { return dst + within; }
};

// ---- copies: a warp for each segment

template <typename T>
__device__ __forceinline__ void copyWalking(const Place& place, u32 bytes, u32 lane) {
  Walk<false> w;
  const u32 step = 32 * sizeof(T);
  u32 off = lane * (u32)sizeof(T);
  if (off >= bytes) return;
  w.seek(place, off);
  while (off < bytes) {
    T v[8];
    Walk<false> load = w;
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (off + i * step < bytes) {
        v[i] = __ldcs((const T*)load.from());
        load.skip(step);
      }
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (off + i * step < bytes) {
        __stcs((T*)w.to(), v[i]);
        w.skip(step);
      }
    off += 8 * step;
  }
}

template <typename T>
__device__ __forceinline__ void copyEach(const Table& table, u64 bytes) {
  const u32 lane = threadIdx.x & 31, segments = (u32)((bytes + segment - 1) / segment);
  const u32 warps = (gridDim.x * blockDim.x) >> 5;
  for (u32 s = (blockIdx.x * blockDim.x + threadIdx.x) >> 5; s < segments; s += warps)
    copyWalking<T>(table.find(s), min(segment, (u32)(bytes - (u64)s * segment)), lane);
}

#define TABLE const Row *__restrict__ rows, const u32 *__restrict__ first, u64 bytes, u64 each, const Shift *__restrict__ shifts, u64 period
#define THE_TABLE (Table{rows, first, shifts, (u32)each, (u32)period})

extern "C" __global__ void copy16(TABLE) { copyEach<uint4>(THE_TABLE, bytes); }
extern "C" __global__ void copy8(TABLE) { copyEach<u64>(THE_TABLE, bytes); }
extern "C" __global__ void copy4(TABLE) { copyEach<u32>(THE_TABLE, bytes); }
extern "C" __global__ void copy1(TABLE) { copyEach<u8>(THE_TABLE, bytes); }

extern "C" __global__ void copy_whole(TABLE) {
  const Table table = THE_TABLE;
  const u32 lane = threadIdx.x & 31, segments = (u32)((bytes + segment - 1) / segment);
  const u32 warps = (gridDim.x * blockDim.x) >> 5;
  for (u32 s = (blockIdx.x * blockDim.x + threadIdx.x) >> 5; s < segments; s += warps) {
    const Place place = table.find(s);
    const u32 here = min(segment, (u32)(bytes - (u64)s * segment));
    if (here < segment) {
      copyWalking<uint4>(place, here, lane);
      continue;
    }
    Walk<false> w;
    w.seek(place, 0);
    const uint4* from = (const uint4*)w.from() + lane;
    uint4* to = (uint4*)w.to() + lane;
    uint4 v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = __ldcs(from + 32 * i);
#pragma unroll
    for (int i = 0; i < 8; i++) __stcs(to + 32 * i, v[i]);
  }
}

// ---- sums: eight lanes for each segment, one accumulator of XXH3 a lane

static constexpr u64 P32_1 = 0x9E3779B1ULL, P32_2 = 0x85EBCA77ULL, P32_3 = 0xC2B2AE3DULL;
static constexpr u64 P64_1 = 0x9E3779B185EBCA87ULL, P64_2 = 0xC2B2AE3D27D4EB4FULL, P64_3 = 0x165667B19E3779F9ULL,
                     P64_4 = 0x85EBCA77C2B2AE63ULL, P64_5 = 0x27D4EB2F165667C5ULL;

// The secret of XXH3, as words.
__constant__ u64 SECRET[24] = {
    0xBE4BA423396CFEB8ULL, 0x1CAD21F72C81017CULL, 0xDB979083E96DD4DEULL, 0x1F67B3B7A4A44072ULL,
    0x78E5C0CC4EE679CBULL, 0x2172FFCC7DD05A82ULL, 0x8E2443F7744608B8ULL, 0x4C263A81E69035E0ULL,
    0xCB00C391BB52283CULL, 0xA32E531B8B65D088ULL, 0x4EF90DA297486471ULL, 0xD8ACDEA946EF1938ULL,
    0x3F349CE33F76FAA8ULL, 0x1D4F0BC7C7BBDCF9ULL, 0x3159B4CD4BE0518AULL, 0x647378D9C97E9FC8ULL,
    0xC3EBD33483ACC5EAULL, 0xEB6313FAFFA081C5ULL, 0x49DAF0B751DD0D17ULL, 0x9E68D429265516D3ULL,
    0xFCA1477D58BE162BULL, 0xCE31D07AD1B8F88FULL, 0x280416958F3ACB45ULL, 0x7E404BBBCAFBD7AFULL
};

__device__ __forceinline__ u64 secret(u32 off) {
  const u32 word = off >> 3, shift = (off & 7) * 8;
  return shift ? (SECRET[word] >> shift) | (SECRET[word + 1] << (64 - shift)) : SECRET[word];
}
__device__ __forceinline__ u64 fold(u64 a, u64 b) { return (a * b) ^ __umul64hi(a, b); }
__device__ __forceinline__ u64 avalanche(u64 h) {
  h ^= h >> 37;
  h *= 0x165667919E3779F9ULL;
  return h ^ (h >> 32);
}
__device__ __forceinline__ u64 rotl(u64 v, int n) { return (v << n) | (v >> (64 - n)); }

// Lane is what one of the eight holds for as long as the kernel runs.
struct Lane {
  u32 index, mask;  // of eight, and which of the warp's lanes those are
  u64 initial, scramble, last, merge;

  __device__ __forceinline__ Lane() {
    const u64 initials[8] = {P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1};
    index = threadIdx.x & 7;
    mask = 0xffu << (threadIdx.x & 24);
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (index == i) initial = initials[i];
    scramble = SECRET[16 + index];
    last = secret(192 - 64 - 7 + 8 * index);
    merge = secret(11 + 8 * index);
  }
  __device__ __forceinline__ void take(u64& acc, u64 word, u64 key) const {
    const u64 k = word ^ key;
    acc += __shfl_xor_sync(mask, word, 1);
    acc += (k & 0xffffffffULL) * (k >> 32);
  }
  __device__ __forceinline__ void stir(u64& acc) const {
    acc ^= acc >> 47;
    acc ^= scramble;
    acc *= P32_1;
  }
  __device__ __forceinline__ u64 finish(u64 acc, u64 bytes) const {
    const u64 a = acc ^ merge, b = __shfl_xor_sync(mask, a, 1);
    u64 f = (index & 1) ? 0 : fold(a, b);
    f += __shfl_xor_sync(mask, f, 1);
    f += __shfl_xor_sync(mask, f, 2);
    f += __shfl_xor_sync(mask, f, 4);
    return avalanche(f + bytes * P64_1);
  }
};

// Source reads the bytes of a segment that is no whole one, in any order.
template <bool PLACED>
struct Source {
  const Place& place;
  __device__ u64 byte(u32 off) const {
    Walk<PLACED> w;
    w.seek(place, off);
    return *(const u8*)w.from();
  }
  __device__ u64 word(u32 off, u32 bytes) const {
    u64 v = 0;
    for (u32 i = 0; i < bytes; i++) v |= byte(off + i) << (8 * i);
    return v;
  }
  __device__ u64 mix(u32 off, u32 key) const { return fold(word(off, 8) ^ secret(key), word(off + 8, 8) ^ secret(key + 8)); }

  // brief is XXH3 of 1 to 240 bytes.
  __device__ u64 brief(u32 n) const {
    if (n <= 3) {
      const u64 v = (byte(0) << 16) | (byte(n >> 1) << 24) | byte(n - 1) | ((u64)n << 8);
      u64 h = v ^ ((secret(0) ^ (secret(0) >> 32)) & 0xffffffffULL);
      h ^= h >> 33;
      h *= P64_2;
      h ^= h >> 29;
      h *= P64_3;
      return h ^ (h >> 32);
    }
    if (n <= 8) {
      u64 h = (word(n - 4, 4) + (word(0, 4) << 32)) ^ secret(8) ^ secret(16);
      h ^= rotl(h, 49) ^ rotl(h, 24);
      h *= 0x9FB21C651E98DF25ULL;
      h ^= (h >> 35) + n;
      h *= 0x9FB21C651E98DF25ULL;
      return h ^ (h >> 28);
    }
    if (n <= 16) {
      const u64 lo = word(0, 8) ^ secret(24) ^ secret(32), hi = word(n - 8, 8) ^ secret(40) ^ secret(48);
      u64 swapped = 0;
      for (int i = 0; i < 8; i++) swapped |= ((lo >> (8 * i)) & 255) << (56 - 8 * i);
      return avalanche(n + swapped + hi + fold(lo, hi));
    }
    u64 acc = n * P64_1;
    if (n <= 128) {
      for (int i = (n - 1) / 32; i >= 0; i--) acc += mix(16 * i, 32 * i) + mix(n - 16 * (i + 1), 32 * i + 16);
      return avalanche(acc);
    }
    for (u32 i = 0; i < 8; i++) acc += mix(16 * i, 16 * i);
    acc = avalanche(acc);
    for (u32 i = 8; i < n / 16; i++) acc += mix(16 * i, 16 * (i - 8) + 3);
    return avalanche(acc + mix(n - 16, 136 - 17));
  }
};

// tail sums the last segment of a launch, of any length; one a launch, so plain.
template <bool PLACED>
__device__ __noinline__ u64 tail(const Place& place, u32 bytes, const Lane& lane) {
  const Source<PLACED> source = {place};
  if (bytes <= 240) return source.brief(bytes);
  u64 acc = lane.initial;
  const u32 stripes = (bytes - 1) / 64;
  for (u32 s = 0; s < stripes; s++) {
    lane.take(acc, source.word(64 * s + 8 * lane.index, 8), SECRET[lane.index + s % 16]);
    if (s % 16 == 15) lane.stir(acc);
  }
  lane.take(acc, source.word(bytes - 64 + 8 * lane.index, 8), lane.last);
  return lane.finish(acc, bytes);
}

// tailCopy moves the last segment, byte by byte.
__device__ __noinline__ void tailCopy(const Place& place, u32 bytes, u32 index) {
  for (u32 off = index; off < bytes; off += 8) {
    Walk<false> w;
    w.seek(place, off);
    *(u8*)w.to() = *(const u8*)w.from();
  }
}

template <int W, bool PLACED>
__device__ __forceinline__ u64 load(Walk<PLACED>& w) {
  u64 v = 0;
  if constexpr (W == 8) {
    v = __ldcs((const u64*)w.from());
    w.skip(64);
  } else {
#pragma unroll 1
    for (int i = 0; i < 8; i++) {
      v |= (u64) * (const u8*)w.from() << (8 * i);
      w.skip(i < 7 ? 1 : 57);
    }
  }
  return v;
}

template <int W, bool PLACED>
__device__ __forceinline__ void store(Walk<PLACED>& w, u64 v) {
  if constexpr (W == 8) {
    __stcs((u64*)w.to(), v);
    w.skip(64);
  } else {
#pragma unroll 1
    for (int i = 0; i < 8; i++) {
      *(u8*)w.to() = (u8)(v >> (8 * i));
      w.skip(i < 7 ? 1 : 57);
    }
  }
}

template <bool COPY, int W, bool WHOLE, bool PLACED>
__device__ __forceinline__ void sumEach(const Table& table, u64 bytes, u64* __restrict__ sums) {
  const Lane lane;
  u64 key[16];  // the secret moves by a word with every stripe
#pragma unroll
  for (int s = 0; s < 16; s++) key[s] = SECRET[lane.index + s];
  const u32 segments = (u32)((bytes + segment - 1) / segment), groups = (gridDim.x * blockDim.x) >> 3;
  for (u32 g = (blockIdx.x * blockDim.x + threadIdx.x) >> 3; g < segments; g += groups) {
    const Place place = table.find(g);
    const u32 here = min(segment, (u32)(bytes - (u64)g * segment));
    if (here < segment) {
      const u64 sum = tail<PLACED>(place, here, lane);
      if (COPY) tailCopy(place, here, lane.index);
      if (lane.index == 0) sums[g] = sum;
      continue;
    }
    Walk<PLACED> w;
    w.seek(place, 8 * lane.index);
    const u64* from = (const u64*)w.from();
    u64* to = (u64*)w.to();
    u64 acc = lane.initial;
#pragma unroll 1
    for (int b = 0; b < 4; b++) {
      u64 d[16];
      if (WHOLE) {
#pragma unroll
        for (int s = 0; s < 16; s++) d[s] = __ldcs(from + b * 128 + s * 8);
        if (COPY) {
#pragma unroll
          for (int s = 0; s < 16; s++) __stcs(to + b * 128 + s * 8, d[s]);
        }
      } else {
        constexpr int unrolled = W == 8 ? 16 : 1;  // bytes are slow anyway
        Walk<PLACED> reads = w;
#pragma unroll unrolled
        for (int s = 0; s < 16; s++) d[s] = load<W, PLACED>(reads);
        if (COPY) {
#pragma unroll unrolled
          for (int s = 0; s < 16; s++) store<W, PLACED>(w, d[s]);
        } else {
          w = reads;
        }
      }
#pragma unroll
      for (int s = 0; s < 15; s++) lane.take(acc, d[s], key[s]);
      lane.take(acc, d[15], b < 3 ? key[15] : lane.last);
      if (b < 3) lane.stir(acc);
    }
    const u64 sum = lane.finish(acc, segment);
    if (lane.index == 0) sums[g] = sum;
  }
}

#define SUMS(name, COPY, W, WHOLE, PLACED)                     \
  extern "C" __global__ void name(TABLE, u64* sums) {          \
    sumEach<COPY, W, WHOLE, PLACED>(THE_TABLE, bytes, sums);    \
  }
SUMS(sum_whole, false, 8, true, false)
SUMS(sum8, false, 8, false, false)
SUMS(sum1, false, 1, false, false)
SUMS(copysum_whole, true, 8, true, false)
SUMS(copysum8, true, 8, false, false)
SUMS(copysum1, true, 1, false, false)
SUMS(placed_whole, false, 8, true, true)
SUMS(placed8, false, 8, false, true)
SUMS(placed1, false, 1, false, true)
