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

using Clock = std::chrono::steady_clock;

// How long to look without giving the core away: about what a quick answer takes.
constexpr std::chrono::microseconds briefly{30};

// How long to look in all before going to sleep, where kernels follow each other: longer than the
// Python code between two of them usually takes. The core goes to whoever wants it meanwhile.
constexpr std::chrono::microseconds patiently{2000};

inline void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Waits until `is_over(value)` holds for the value of an atomic: first awake, then giving way to
// others until `patience` is over, then asleep, and counted in `asleep`. Returns how long that
// took.
template <class T, class IsOver>
Clock::duration wait_until(const std::atomic<T>& value, IsOver is_over, Clock::duration patience,
                           std::atomic<int>& asleep) {
    const auto start = Clock::now();
    auto waited = Clock::duration::zero();
    T seen = value.load(std::memory_order_acquire);
    while (!is_over(seen)) {
        if (waited < patience) {
            for (int i = 0; i < 16; ++i) // a sibling on the same core computes meanwhile
                pause_briefly();
            if (waited >= briefly)
                std::this_thread::yield();
        } else {
            // The waker changes the value and then looks at the count, this thread the other way
            // round: one of them sees what the other did.
            asleep.fetch_add(1, std::memory_order_seq_cst);
            if (value.load(std::memory_order_seq_cst) == seen)
                value.wait(seen, std::memory_order_acquire);
            asleep.fetch_sub(1, std::memory_order_relaxed);
        }
        waited = Clock::now() - start;
        seen = value.load(std::memory_order_acquire);
    }
    return waited;
}

// A kernel's work, handed out task by task.
struct Work {
    std::int64_t n_tasks = 0;
    int n_threads = 0;
    void (*run)(const void*, std::int64_t, int) = nullptr;
    const void* context = nullptr;
    alignas(cache_line) std::atomic<std::int64_t> next_task{0};
    alignas(cache_line) std::atomic<int> next_thread{0};

    // Whether another thread could help.
    bool wants_more() const {
        return next_task.load(std::memory_order_relaxed) < n_tasks &&
               next_thread.load(std::memory_order_relaxed) < n_threads;
    }

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
//
// Threads that are awake hear the bell. Of those asleep the caller wakes one, and each one that
// comes wakes two more as long as there are tasks left: waking them all would take the caller
// longer than many a kernel.
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
        bell_.fetch_add(1, std::memory_order_seq_cst);
        wake_another();
        work_.do_all(0);
        visitors_.fetch_sub(closed, std::memory_order_seq_cst);
        wait_until(
            visitors_, [](int count) { return count == -closed; }, patiently, callers_asleep_);
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

    // To be called by the caller or a visitor, for whom `work_` is valid.
    void wake_another() {
        if (asleep_.load(std::memory_order_seq_cst) > 0 && work_.wants_more())
            bell_.notify_one();
    }

    void work_for_ever(unsigned heard) {
        Clock::duration patience = patiently;
        for (;;) {
            const auto waited = wait_until(
                bell_, [heard](unsigned now) { return now != heard; }, patience, asleep_);
            // After a long pause the next kernel may be far off too: sleep soon.
            patience = waited < patiently ? patiently : briefly;
            heard = bell_.load(std::memory_order_acquire);
            if (visitors_.fetch_add(1, std::memory_order_acquire) >= 0) {
                const int thread = work_.next_thread.fetch_add(1, std::memory_order_relaxed);
                if (thread < work_.n_threads) {
                    wake_another();
                    wake_another();
                    work_.do_all(thread);
                }
            }
            if (visitors_.fetch_sub(1, std::memory_order_seq_cst) == 1 - closed &&
                callers_asleep_.load(std::memory_order_seq_cst) > 0)
                visitors_.notify_one(); // the caller, who waits for the last one to leave
        }
    }

    Work work_;
    int n_workers_ = 0;
    alignas(cache_line) std::atomic<unsigned> bell_{0};
    alignas(cache_line) std::atomic<int> visitors_{-closed};
    alignas(cache_line) std::atomic<int> asleep_{0}; // workers
    std::atomic<int> callers_asleep_{0};             // 0 or 1
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
