#include "pool.h"

#include <ctime>

#if defined(__linux__)
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace vv {
namespace {

int64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// The CPUs that this process may use, in order; thread i takes the i-th.
void pin_to(int thread) {
#if defined(__linux__)
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    int seen = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && seen++ == thread) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            pthread_setaffinity_np(pthread_self(), sizeof one, &one);
            return;
        }
#else
    (void)thread;
#endif
}

constexpr int64_t kBarrierSpinNs = 50000, kBarrierYieldNs = 500000;

}  // namespace

void Gate::open() {
    word_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
#if defined(__linux__)
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word_), FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
#endif
}

void Gate::wait(uint32_t seen, int64_t spin_ns, int64_t yield_ns) {
    for (int i = 0; i < 200; i++) {
        if (value() != seen) return;
        relax();
    }
    const int64_t t0 = now_ns();
    for (;;) {
        for (int i = 0; i < 50; i++) {
            if (value() != seen) return;
            relax();
        }
        const int64_t t = now_ns() - t0;
        if (t > spin_ns + yield_ns) break;
        if (t > spin_ns) std::this_thread::yield();
    }
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    while (value() == seen) {
#if defined(__linux__)
        syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word_), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
#else
        timespec nap = {0, 50000};
        nanosleep(&nap, nullptr);
#endif
    }
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

Pool::Pool(int threads, bool pin, int idle_spin_us)
    : threads_(threads), pin_(pin), idle_spin_ns_(int64_t(idle_spin_us) * 1000) {
    next_ = threads_;
    for (int i = 1; i < threads_; i++) workers_.emplace_back([this, i] { worker(i); });
}

Pool::~Pool() {
    stop_ = true;
    start_.open();
    for (auto& w : workers_) w.join();
}

void Pool::worker(int thread) {
    if (pin_) pin_to(thread);
    uint32_t seen = 0;
    for (;;) {
        start_.wait(seen, idle_spin_ns_, 0);
        seen++;
        if (stop_) return;
        fn_(ctx_, thread);
        barrier();
    }
}

void Pool::run(void (*fn)(void*, int), void* ctx) {
    fn_ = fn;
    ctx_ = ctx;
    if (threads_ > 1) start_.open();
    fn(ctx, 0);
    barrier();
}

bool Pool::barrier(const volatile int32_t* flag) {
    if (threads_ == 1) {
        next_.store(1, std::memory_order_relaxed);
        return flag_ = flag && *flag;
    }
    const uint32_t seen = meet_.value();
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == threads_ - 1) {
        arrived_.store(0, std::memory_order_relaxed);
        next_.store(threads_, std::memory_order_relaxed);
        flag_ = flag && *flag;
        meet_.open();
    } else {
        meet_.wait(seen, kBarrierSpinNs, kBarrierYieldNs);
    }
    return flag_;
}

}  // namespace vv
