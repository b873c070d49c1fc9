// Many short kernels from several callers at once, for ThreadSanitizer: every task is done once, no
// two tasks share a thread number at a time, and what tasks write is there when a kernel returns.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#ifdef __unix__
#include <sys/wait.h>
#include <unistd.h>
#endif

#include "thread_pool.hpp"

namespace {

// Plain numbers, so that a race is one that the sanitizer sees.
struct Kernel {
    std::vector<int>* done;
    std::vector<std::int64_t>* of_thread;
};

bool run_kernels(int n_kernels, int most_threads) {
    for (int k = 0; k < n_kernels; ++k) {
        const int n_threads = 1 + k % most_threads;
        const std::int64_t n_tasks = k % 41;
        std::vector<int> done(n_tasks, 0);
        std::vector<std::int64_t> of_thread(n_threads, 0);
        const Kernel kernel{&done, &of_thread};
        klnmf::run_tasks(
            n_tasks, n_threads,
            [](const void* context, std::int64_t task, int thread) {
                const Kernel& here = *static_cast<const Kernel*>(context);
                (*here.done)[task] += 1;
                for (int i = 0; i < 300; ++i) // long enough for others to come and help
                    here.of_thread->at(thread) += i % 2 ? 2 : -1;
            },
            &kernel);
        std::int64_t total = 0;
        for (const std::int64_t count : of_thread)
            total += count;
        if (total != 150 * n_tasks)
            return false;
        for (const int times : done)
            if (times != 1)
                return false;
    }
    return true;
}

bool run_in_child() {
#ifdef __unix__
    const pid_t child = fork();
    if (child == 0) {
        alarm(60); // a child that hangs is ended by the signal
        _exit(run_kernels(200, 4) ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    return status == 0;
#else
    return true;
#endif
}

} // namespace

int main(int argc, char** argv) {
    const int n_kernels = argc > 1 ? std::atoi(argv[1]) : 5000;
    const int n_forks = argc > 2 ? std::atoi(argv[2]) : 0;
    std::vector<std::thread> callers;
    std::vector<char> right(3, 0);
    for (std::size_t i = 0; i < right.size(); ++i)
        callers.emplace_back([&, i] { right[i] = run_kernels(n_kernels, 2 + 3 * int(i)); });
    bool all = true;
    for (int i = 0; i < n_forks; ++i) // while the others are at work
        all = run_in_child() && all;
    for (std::thread& caller : callers)
        caller.join();
    for (const char one : right)
        all = one && all;
    std::puts(all ? "right" : "wrong");
    return all ? 0 : 1;
}
