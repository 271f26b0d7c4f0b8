// Which tables this machine can run.
#include "kernels.h"
#include "vivace_native.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace vv {
namespace {

#if defined(__x86_64__)
struct Cpu {
    bool avx2 = false, avxvnni = false, avx512 = false, amx = false;
};

uint64_t xcr0() {
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t(hi) << 32) | lo;
}

// Tile state is off until a process asks for it (Linux, arch_prctl ARCH_REQ_XCOMP_PERM of XTILEDATA).
bool tiles_permitted() {
#if defined(__linux__)
    constexpr long req_xcomp_perm = 0x1023, xtiledata = 18;
    return syscall(SYS_arch_prctl, req_xcomp_perm, xtiledata) == 0;
#else
    return false;
#endif
}

Cpu detect() {
    Cpu cpu;
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return cpu;
    const bool fma = c >> 12 & 1, f16c = c >> 29 & 1;
    const uint64_t state = xcr0();
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return cpu;
    const uint32_t b7 = b, c7 = c, d7 = d;
    cpu.avx2 = (state & 6) == 6 && (b7 >> 5 & 1) && fma && f16c;
    const bool f = b7 >> 16 & 1, dq = b7 >> 17 & 1, bw = b7 >> 30 & 1, vl = b7 >> 31 & 1, vnni = c7 >> 11 & 1;
    cpu.avx512 = cpu.avx2 && (state & 0xe6) == 0xe6 && f && dq && bw && vl && vnni;
    uint32_t bf16 = 0;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) {
        bf16 = a >> 5 & 1;
        cpu.avxvnni = cpu.avx2 && (a >> 4 & 1);
    }
    const bool tile = (d7 >> 24 & 1) && (d7 >> 25 & 1) && (d7 >> 22 & 1);
    cpu.amx = cpu.avx512 && bf16 && tile && (state & 0x60000) == 0x60000 && tiles_permitted();
    return cpu;
}

const Cpu& cpu() {
    static const Cpu found = detect();
    return found;
}
#endif

}  // namespace

const Kernels* kernels_for(int isa) {
    if (isa == VV_ISA_AUTO) isa = isa_best();
    if (isa == VV_ISA_PORTABLE) return kernels_portable();
#if defined(__x86_64__)
    if (isa == VV_ISA_AVX2) return cpu().avx2 ? kernels_avx2() : nullptr;
    if (isa == VV_ISA_AVXVNNI) return cpu().avxvnni ? kernels_avxvnni() : nullptr;
    if (isa == VV_ISA_AVX512) return cpu().avx512 ? kernels_avx512() : nullptr;
    if (isa == VV_ISA_AMX) return cpu().amx ? kernels_amx() : nullptr;
#endif
    return nullptr;
}

int isa_best() {
    constexpr int best_first[] = {VV_ISA_AMX, VV_ISA_AVX512, VV_ISA_AVXVNNI, VV_ISA_AVX2};
    for (int isa : best_first)
        if (kernels_for(isa)) return isa;
    return VV_ISA_PORTABLE;
}

}  // namespace vv

extern "C" int32_t vv_isa_best(void) { return vv::isa_best(); }
extern "C" const char* vv_isa_name(int32_t isa) {
    const vv::Kernels* k = vv::kernels_for(isa);
    return k ? k->name : nullptr;
}
