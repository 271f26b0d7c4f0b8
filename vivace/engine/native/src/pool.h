// Threads that run one function together, and meet at barriers inside it.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace vv {

// A 32-bit word that threads wait on: spin, then yield, then sleep in the kernel.
class Gate {
public:
    uint32_t value() const { return word_.load(std::memory_order_acquire); }
    void open();  // raises the word and wakes the sleepers
    void wait(uint32_t seen, int64_t spin_ns, int64_t yield_ns);

private:
    alignas(64) std::atomic<uint32_t> word_{0};
    std::atomic<uint32_t> sleepers_{0};
};

class Pool {
public:
    Pool(int threads, bool pin, int idle_spin_us);
    ~Pool();
    Pool(const Pool&) = delete;

    int threads() const { return threads_; }

    // Runs fn(ctx, thread) on every thread; the caller is thread 0.
    void run(void (*fn)(void*, int), void* ctx);

    // Inside run: all threads meet; the last to arrive resets the work counter and copies *flag (may be null).
    // Returns the flag as all threads then see it.
    bool barrier(const volatile int32_t* flag = nullptr);

    // Inside run: the next unclaimed piece of work since the last barrier. A thread's first piece is its own number,
    // so that it can prefetch it before the barrier; the counter starts behind those.
    int claim() { return next_.fetch_add(1, std::memory_order_relaxed); }

private:
    void worker(int thread);

    const int threads_;
    const bool pin_;
    const int64_t idle_spin_ns_;
    void (*fn_)(void*, int) = nullptr;
    void* ctx_ = nullptr;
    bool stop_ = false;
    bool flag_ = false;
    alignas(64) std::atomic<int> next_{0};
    alignas(64) std::atomic<int> arrived_{0};
    Gate meet_;
    Gate start_;
    std::vector<std::thread> workers_;
};

}  // namespace vv
