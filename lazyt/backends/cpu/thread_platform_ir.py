"""The LLVM IR of what thread_pool_ir.py asks of a platform: floating-point state, time, sleep, CPU affinity."""

from __future__ import annotations

from lazyt.ir.records import dataclass


@dataclass(frozen=True)
class Platform:
    """The platform-dependent parts of the runtime: pausing, sleeping, time, signal masks, CPU affinity of workers."""

    architecture: str  # 'x86_64', 'aarch64' or another
    futex: int | None  # number of the futex system call, or None: a mutex and a condition variable
    sig_block: int
    blocked_signals: bytes
    clock: int  # number of the monotonic clock
    affinity: bool  # whether threads can be kept off CPUs: Linux's calls


_PAUSE = {
    "x86_64": ("call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"),
    "aarch64": ("call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)"),
}

# Rounding and flush-to-zero belong to each thread, and other libraries change them; results must not depend on which
# thread ran a chunk. @float.usual is the mode of all programs, which @float_flush chooses: subnormal numbers are what
# they are, or zeros. It gives 0 if the processor has no such mode.
_FLOAT_X86 = """
@float.usual = internal global i32 8064, align 4
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define internal i64 @float_reset() nounwind {
  %slot = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %slot)
  %found = load i32, ptr %slot
  %modes = and i32 %found, 65472
  %want = load atomic i32, ptr @float.usual monotonic, align 4
  %usual = icmp eq i32 %modes, %want
  br i1 %usual, label %out, label %reset
reset:
  store i32 %want, ptr %slot
  call void @llvm.x86.sse.ldmxcsr(ptr %slot)
  br label %out
out:
  %wide = zext i32 %found to i64
  ret i64 %wide
}
define internal void @float_restore(i64 %found) nounwind {
  %slot = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %slot)
  %now = load i32, ptr %slot
  %low = trunc i64 %found to i32
  %changes = xor i32 %now, %low
  %modes = and i32 %changes, 65472
  %usual = icmp eq i32 %modes, 0
  br i1 %usual, label %out, label %restore
restore:
  store i32 %low, ptr %slot
  call void @llvm.x86.sse.ldmxcsr(ptr %slot)
  br label %out
out:
  ret void
}
define internal i64 @float_flush(i64 %on) nounwind {
  %some = icmp ne i64 %on, 0
  %want = select i1 %some, i32 40896, i32 8064
  store atomic i32 %want, ptr @float.usual monotonic, align 4
  ret i64 1
}
"""
_FLOAT_AARCH64 = """
@float.usual = internal global i64 0, align 8
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)
define internal i64 @float_reset() nounwind {
  %found = call i64 @llvm.aarch64.get.fpcr()
  %want = load atomic i64, ptr @float.usual monotonic, align 8
  call void @llvm.aarch64.set.fpcr(i64 %want)
  ret i64 %found
}
define internal void @float_restore(i64 %found) nounwind {
  call void @llvm.aarch64.set.fpcr(i64 %found)
  ret void
}
define internal i64 @float_flush(i64 %on) nounwind {
  %some = icmp ne i64 %on, 0
  %want = select i1 %some, i64 16777216, i64 0
  store atomic i64 %want, ptr @float.usual monotonic, align 8
  ret i64 1
}
"""
_FLOAT_OTHER = """
define internal i64 @float_reset() nounwind {
  ret i64 0
}
define internal void @float_restore(i64 %found) nounwind {
  ret void
}
define internal i64 @float_flush(i64 %on) nounwind {
  ret i64 0
}
"""

# Nanoseconds of a clock that never goes back.
_TIME = """
declare i32 @clock_gettime(i32, ptr)
define internal i64 @now() nounwind {
  %time = alloca [2 x i64], align 8
  %r = call i32 @clock_gettime(i32 $CLOCK, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %rest.at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.at, align 8
  %whole = mul i64 %seconds, 1000000000
  %all = add i64 %whole, %rest
  ret i64 %all
}
"""

# wait(word, value): sleep while *word == value, or less long; wake(word, n): wake n sleepers.
_SLEEP_FUTEX = """
declare i64 @syscall(i64, ...)
define internal void @sleep_init() nounwind {
  ret void
}
define internal void @wait(ptr %word, i32 %value) nounwind {
  %wide = zext i32 %value to i64
  %r = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %word, i64 128, i64 %wide, ptr null)
  ret void
}
define internal void @wake(ptr %word, i64 %n) nounwind {
  %r = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %word, i64 129, i64 %n)
  ret void
}
"""
_SLEEP_CONDITION = """
@mutex = internal global [128 x i8] zeroinitializer, align 64
@condition = internal global [128 x i8] zeroinitializer, align 64
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
define internal void @sleep_init() nounwind {
  %a = call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  %b = call i32 @pthread_cond_init(ptr @condition, ptr null)
  ret void
}
define internal void @wait(ptr %word, i32 %value) nounwind {
  %a = call i32 @pthread_mutex_lock(ptr @mutex)
  %now = load atomic i32, ptr %word seq_cst, align 4
  %same = icmp eq i32 %now, %value
  br i1 %same, label %sleep, label %out
sleep:
  %b = call i32 @pthread_cond_wait(ptr @condition, ptr @mutex)
  br label %out
out:
  %c = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}
define internal void @wake(ptr %word, i64 %n) nounwind {
  %a = call i32 @pthread_mutex_lock(ptr @mutex)
  %b = call i32 @pthread_cond_broadcast(ptr @condition)
  %c = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}
"""

_PLACE_ANYWHERE = """
define internal void @place() nounwind {
  ret void
}
define internal void @unplace() nounwind {
  ret void
}
"""
# What it takes of the C library.
AFFINITY = ("sched_getcpu", "sched_getaffinity", "pthread_setaffinity_np")
_PLACE_AFFINITY = """
@mask = internal global [16 x i64] zeroinitializer, align 64
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)
declare <16 x i64> @llvm.ctpop.v16i64(<16 x i64>)
declare i64 @llvm.vector.reduce.add.v16i64(<16 x i64>)

; every worker may run where @mask says
define internal void @spread.out() nounwind {
entry:
  %n = load i64, ptr @workers
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %out
body:
  %slot = getelementptr [$MAX_WORKERS x i64], ptr @threads, i64 0, i64 %i
  %thread = load i64, ptr %slot
  %r = call i32 @pthread_setaffinity_np(i64 %thread, i64 128, ptr @mask)
  %next = add i64 %i, 1
  br label %head
out:
  ret void
}

; keep the workers off the CPU that this thread runs on
define internal void @place() nounwind {
entry:
  %cpu = call i32 @sched_getcpu()
  %before = load i32, ptr @avoided
  %same = icmp eq i32 %cpu, %before
  br i1 %same, label %out, label %look
look:
  store i32 %cpu, ptr @avoided
  %n = load i64, ptr @workers
  %few = icmp sle i64 %n, $MAX_PLACED
  %known = icmp ult i32 %cpu, 1024
  %try = and i1 %few, %known
  br i1 %try, label %ask, label %out
ask:
  store <16 x i64> zeroinitializer, ptr @mask
  %failed = call i32 @sched_getaffinity(i32 0, i64 128, ptr @mask)
  %given = icmp eq i32 %failed, 0
  br i1 %given, label %count, label %out
count:
  %words = load <16 x i64>, ptr @mask
  %each = call <16 x i64> @llvm.ctpop.v16i64(<16 x i64> %words)
  %cpus = call i64 @llvm.vector.reduce.add.v16i64(<16 x i64> %each)
  ; with fewer, workers share CPUs with each other or with this thread: the system knows better
  %enough = icmp sgt i64 %cpus, %n
  br i1 %enough, label %move, label %out
move:
  %index = lshr i32 %cpu, 6
  %word.at = getelementptr i64, ptr @mask, i32 %index
  %word = load i64, ptr %word.at
  %low = and i32 %cpu, 63
  %shift = zext i32 %low to i64
  %bit = shl i64 1, %shift
  %others = xor i64 %bit, -1
  %kept = and i64 %word, %others
  store i64 %kept, ptr %word.at
  call void @spread.out()
  br label %out
out:
  ret void
}

; let the workers run wherever this thread may
define internal void @unplace() nounwind {
entry:
  %before = load i32, ptr @avoided
  %placed = icmp ne i32 %before, -1
  br i1 %placed, label %ask, label %out
ask:
  store i32 -1, ptr @avoided
  store <16 x i64> zeroinitializer, ptr @mask
  %failed = call i32 @sched_getaffinity(i32 0, i64 128, ptr @mask)
  %given = icmp eq i32 %failed, 0
  br i1 %given, label %move, label %out
move:
  call void @spread.out()
  br label %out
out:
  ret void
}
"""


def pause_of(platform: Platform) -> str:
    """The instruction of a thread that waits for another."""
    return _PAUSE.get(platform.architecture, ("", ""))[0]


def platform_text(platform: Platform) -> str:
    """`@float_reset`, `_restore` and `_flush`, `@now`, `@sleep_init`, `@wait`, `@wake`, `@place` and `@unplace`."""
    _, pause_declaration = _PAUSE.get(platform.architecture, ("", ""))
    floats = {"x86_64": _FLOAT_X86, "aarch64": _FLOAT_AARCH64}
    sleep = _SLEEP_CONDITION if platform.futex is None else _SLEEP_FUTEX
    place = _PLACE_AFFINITY if platform.affinity else _PLACE_ANYWHERE
    return "\n".join((pause_declaration, floats.get(platform.architecture, _FLOAT_OTHER), _TIME, sleep, place))
