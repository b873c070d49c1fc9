#include "thread_pool.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <mutex>
#include <new>
#include <thread>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#include <signal.h>
#define KLNMF_HAS_POSIX 1
#endif

namespace klnmf {
namespace {

// What threads write to at the same time is kept apart.
constexpr std::size_t cache_line = 64;

// How long to look before going to sleep: a little more than being woken takes.
constexpr std::chrono::microseconds patience{30};

inline void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Waits until `is_over(value)` holds for the value of an atomic, first awake and then asleep.
template <class T, class IsOver>
void wait_until(const std::atomic<T>& value, IsOver is_over) {
    const auto start = std::chrono::steady_clock::now();
    T seen = value.load(std::memory_order_acquire);
    while (!is_over(seen)) {
        if (std::chrono::steady_clock::now() - start < patience)
            for (int i = 0; i < 16; ++i)
                pause_briefly();
        else
            value.wait(seen, std::memory_order_acquire);
        seen = value.load(std::memory_order_acquire);
    }
}

// A kernel's work, handed out task by task.
struct Work {
    std::int64_t n_tasks = 0;
    int n_threads = 0;
    void (*run)(const void*, std::int64_t, int) = nullptr;
    const void* context = nullptr;
    alignas(cache_line) std::atomic<std::int64_t> next_task{0};
    alignas(cache_line) std::atomic<int> next_thread{0};

    void do_all(int thread) {
        for (;;) {
            const std::int64_t task = next_task.fetch_add(1, std::memory_order_relaxed);
            if (task >= n_tasks)
                return;
            run(context, task, thread);
        }
    }
};

// Some sleeping threads, used by one caller at a time.
//
// `visitors` counts the threads that look at the work, minus `closed` while there is none. A
// thread that wakes up late finds it negative and leaves: the caller waits for those who came in
// time and for nobody else. Opening and closing add to the same counter, so that a late visitor
// who comes and goes in between disturbs neither.
class Team {
public:
    void run(std::int64_t n_tasks, int n_threads, void (*function)(const void*, std::int64_t, int),
             const void* context) {
        grow(n_threads - 1);
        work_.n_tasks = n_tasks;
        work_.n_threads = n_threads;
        work_.run = function;
        work_.context = context;
        work_.next_task.store(0, std::memory_order_relaxed);
        work_.next_thread.store(1, std::memory_order_relaxed);
        visitors_.fetch_add(closed, std::memory_order_release);
        bell_.fetch_add(1, std::memory_order_release);
        if (n_workers_ < n_threads)
            bell_.notify_all();
        else
            for (int i = 1; i < n_threads; ++i)
                bell_.notify_one();
        work_.do_all(0);
        visitors_.fetch_sub(closed, std::memory_order_acq_rel);
        wait_until(visitors_, [](int count) { return count == -closed; });
    }

    Team* next_idle = nullptr;

private:
    static constexpr int closed = 1 << 20; // more than there are threads

    // Starts threads up to so many; fewer if the system has no more to give.
    void grow(int wanted) {
        while (n_workers_ < wanted) {
            try {
                start_worker();
            } catch (const std::exception&) { // no thread, or no memory for one
                return;
            }
            ++n_workers_;
        }
    }

    void start_worker() {
        const unsigned heard = bell_.load(std::memory_order_relaxed);
#ifdef KLNMF_HAS_POSIX
        // Signals are for the threads of the program: Ctrl-C should not interrupt a worker.
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            std::thread(&Team::work_for_ever, this, heard).detach();
        } catch (...) {
            pthread_sigmask(SIG_SETMASK, &before, nullptr);
            throw;
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
#else
        std::thread(&Team::work_for_ever, this, heard).detach();
#endif
    }

    void work_for_ever(unsigned heard) {
        for (;;) {
            wait_until(bell_, [heard](unsigned now) { return now != heard; });
            heard = bell_.load(std::memory_order_acquire);
            if (visitors_.fetch_add(1, std::memory_order_acquire) >= 0) {
                const int thread = work_.next_thread.fetch_add(1, std::memory_order_relaxed);
                if (thread < work_.n_threads)
                    work_.do_all(thread);
            }
            if (visitors_.fetch_sub(1, std::memory_order_release) == 1 - closed)
                visitors_.notify_one(); // the caller, who may wait for the last one to leave
        }
    }

    Work work_;
    int n_workers_ = 0;
    alignas(cache_line) std::atomic<unsigned> bell_{0};
    alignas(cache_line) std::atomic<int> visitors_{-closed};
};

// The teams of this process that nobody uses at the moment. Never destroyed: its threads sleep on
// until the process ends.
class IdleTeams {
public:
    Team* take() {
        const std::lock_guard lock(mutex_);
        Team* team = first_;
        if (team == nullptr)
            return new (std::nothrow) Team;
        first_ = team->next_idle;
        return team;
    }

    void give_back(Team* team) {
        const std::lock_guard lock(mutex_);
        team->next_idle = first_;
        first_ = team;
    }

private:
    std::mutex mutex_;
    Team* first_ = nullptr;
};

std::atomic<IdleTeams*> idle_teams{nullptr};

#ifdef KLNMF_HAS_POSIX
// A child has a copy of the teams, and none of their threads; and perhaps a locked mutex, whose
// owner did not come along. It starts anew.
void forget_teams() {
    idle_teams.store(nullptr, std::memory_order_relaxed);
}
[[maybe_unused]] const int fork_handler = pthread_atfork(nullptr, nullptr, forget_teams);
#endif

// No function-local static: its guard could be locked in a child of fork.
IdleTeams* teams_of_this_process() {
    IdleTeams* teams = idle_teams.load(std::memory_order_acquire);
    if (teams != nullptr)
        return teams;
    IdleTeams* fresh = new (std::nothrow) IdleTeams;
    if (fresh == nullptr || idle_teams.compare_exchange_strong(teams, fresh))
        return fresh;
    delete fresh;
    return teams;
}

} // namespace

void run_tasks(std::int64_t n_tasks, int n_threads,
               void (*run)(const void* context, std::int64_t task, int thread),
               const void* context) {
    if (n_threads > n_tasks)
        n_threads = static_cast<int>(n_tasks);
    IdleTeams* teams = n_threads > 1 ? teams_of_this_process() : nullptr;
    Team* team = teams != nullptr ? teams->take() : nullptr;
    if (team == nullptr) {
        for (std::int64_t task = 0; task < n_tasks; ++task)
            run(context, task, 0);
        return;
    }
    team->run(n_tasks, n_threads, run, context);
    teams->give_back(team);
}

} // namespace klnmf
