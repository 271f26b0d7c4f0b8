// What the machine can do at best: the figures that achieved speeds are compared with.
#include <atomic>
#include <ctime>

#include "model.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace vv {
namespace {

double now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) uint64_t read_512(const char* p, size_t n) {
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    for (size_t i = 0; i + 256 <= n; i += 256) {
        _mm_prefetch(p + i + 4096, _MM_HINT_T1);
        _mm_prefetch(p + i + 4160, _MM_HINT_T1);
        _mm_prefetch(p + i + 4224, _MM_HINT_T1);
        _mm_prefetch(p + i + 4288, _MM_HINT_T1);
        a = _mm512_xor_si512(a, _mm512_load_si512(p + i));
        b = _mm512_xor_si512(b, _mm512_load_si512(p + i + 64));
        c = _mm512_xor_si512(c, _mm512_load_si512(p + i + 128));
        d = _mm512_xor_si512(d, _mm512_load_si512(p + i + 192));
    }
    return uint64_t(_mm512_reduce_add_epi64(_mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d))));
}

__attribute__((target("amx-tile,amx-int8"))) void tiles_int8(int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 5, 6);
        _tile_dpbssd(2, 4, 7);
        _tile_dpbssd(3, 5, 7);
    }
}

__attribute__((target("amx-tile,amx-bf16"))) void tiles_bf16(int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 5, 6);
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
    }
}
#endif

uint64_t read_plain(const char* p, size_t n) {
    const uint64_t* q = reinterpret_cast<const uint64_t*>(p);
    uint64_t s[8] = {};
    for (size_t i = 0; i + 8 <= n / 8; i += 8)
        for (int j = 0; j < 8; j++) s[j] ^= q[i + size_t(j)];
    return s[0] ^ s[1] ^ s[2] ^ s[3] ^ s[4] ^ s[5] ^ s[6] ^ s[7];
}

struct Probe {
    Pool& pool;
    int kind;
    const Memory& memory;
    double seconds;
    std::atomic<double> work{0};  // bytes or operations, all threads
    std::atomic<uint64_t> sink{0};
};

void add(std::atomic<double>& total, double x) {
    double old = total.load();
    while (!total.compare_exchange_weak(old, old + x)) {
    }
}

void run(void* context, int thread) {
    Probe& p = *static_cast<Probe*>(context);
    const bool wide = kernels_for(VV_ISA_AVX512) != nullptr;
    const Kernels* amx = kernels_for(VV_ISA_AMX);
    double done = 0;
    if (p.kind == 0) {
        const size_t share = p.memory.size() / size_t(p.pool.threads()) / 4096 * 4096;
        char* mine = p.memory.data() + size_t(thread) * share;
        for (size_t i = 0; i < share; i += 4096) mine[i] = char(i);
        p.pool.barrier();
        const double end = now() + p.seconds;
        uint64_t x = 0;
        while (now() < end) {
#if defined(__x86_64__)
            x ^= wide ? read_512(mine, share) : read_plain(mine, share);
#else
            x ^= read_plain(mine, share);
#endif
            done += double(share);
        }
        p.sink ^= x;
    } else if (amx) {
#if defined(__x86_64__)
        amx->thread_begin();
        p.pool.barrier();
        const double end = now() + p.seconds;
        while (now() < end) {
            if (p.kind == 1)
                tiles_int8(2000);
            else
                tiles_bf16(2000);
            done += 2000.0 * 4 * 16 * 16 * (p.kind == 1 ? 64 : 32) * 2;
        }
        amx->thread_end();
#endif
    }
    (void)wide;
    add(p.work, done);
}

}  // namespace
}  // namespace vv

extern "C" double vv_probe(int32_t kind, int32_t threads, int64_t bytes, double seconds) {
    using namespace vv;
    if (kind < 0 || kind > 2 || threads < 1 || threads > 1024 || seconds <= 0 || seconds > 10) return 0;
    Memory memory(kind == 0 ? size_t(bytes) : 4096);
    if (!memory.data()) return 0;
    Pool pool(threads, true, 0);
    Probe p{pool, kind, memory, seconds};
    pool.run(run, &p);
    return p.work.load() / seconds;
}
