"""The LLVM IR of the program driver and its thread pool; `thread_pool.py` compiles and calls it.

    state     generation << 32 | next chunk of the open region; chunk 0xffffffff: closed to claims
    done      chunks of the region that have been run; the caller waits for done == total

The caller closes the state, writes the region (rows, table, total), opens it under the next
generation and works too. A worker claims a chunk by moving `state` on by one. A claim that succeeds
proves that the region which the worker read is the one that is open: the generation is part of the
word, and a region is written only while closed. Idle workers watch the generation for a while, then
sleep on it (a futex on the upper half of `state`).

    avoided   the CPU that workers are kept off: the caller's when it last opened a region

On virtual machines an idle CPU often looks busy, and some systems pack threads on few CPUs: a worker that is woken
there is queued behind its caller, and joins the caller's region milliseconds late. So the caller takes its own
CPU out of the workers' affinity when it opens a region on another one than before, if it may use enough others; and
gives it back before it sleeps, so that a worker which waits for its own CPU can have it.

It is one module of IR, in one file: the functions share the pool's state and nothing else does.
"""

from __future__ import annotations

import hashlib
from string import Template

from lazyt.backends.cpu.codegen.needs import FRAME, LIBRARY_FRAME
from lazyt.backends.cpu.workspace import WORKSPACE
from lazyt.ir.records import dataclass

MAX_WORKERS = 255
# Bytes of a worker's stack; some systems' own choice is less. Its workspace, what a kernel may need on top of a product
# that calls it as its epilogue, and as much again for whatever else is native (BLAS).
STACK = 2 * (FRAME + LIBRARY_FRAME + WORKSPACE)
ROW_FIELDS = 5
CONTROL_FIELDS = 8
# About 50 us on x86: longer than the gap between the regions of one program.
WORKER_SPINS = 1000
CALLER_SPINS = 4000
# More workers than these have others to take their chunks, and to move them all takes long.
MAX_PLACED = 15
# From here on even a program of small rows lets other Python threads run meanwhile.
LONG_PROGRAM = 256


@dataclass(frozen=True)
class Platform:
    """The platform-dependent parts of the runtime: pausing, sleeping, signal masks and CPU affinity of workers."""

    architecture: str  # 'x86_64', 'aarch64' or another
    futex: int | None  # number of the futex system call, or None: a mutex and a condition variable
    sig_block: int
    blocked_signals: bytes
    affinity: bool  # whether threads can be kept off CPUs: Linux's calls


_PAUSE = {
    "x86_64": ("call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"),
    "aarch64": ("call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)"),
}

# Rounding and flush-to-zero belong to each thread, and other libraries change them; results must
# not depend on which thread ran a chunk.
_FLOAT_X86 = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define internal i64 @float_reset() nounwind {
  %slot = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %slot)
  %found = load i32, ptr %slot
  %modes = and i32 %found, 65472
  %usual = icmp eq i32 %modes, 8064
  br i1 %usual, label %out, label %reset
reset:
  store i32 8064, ptr %slot
  call void @llvm.x86.sse.ldmxcsr(ptr %slot)
  br label %out
out:
  %wide = zext i32 %found to i64
  ret i64 %wide
}
define internal void @float_restore(i64 %found) nounwind {
  %slot = alloca i32, align 4
  %low = trunc i64 %found to i32
  %modes = and i32 %low, 65472
  %usual = icmp eq i32 %modes, 8064
  br i1 %usual, label %out, label %restore
restore:
  store i32 %low, ptr %slot
  call void @llvm.x86.sse.ldmxcsr(ptr %slot)
  br label %out
out:
  ret void
}
"""
_FLOAT_AARCH64 = """
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)
define internal i64 @float_reset() nounwind {
  %found = call i64 @llvm.aarch64.get.fpcr()
  call void @llvm.aarch64.set.fpcr(i64 0)
  ret i64 %found
}
define internal void @float_restore(i64 %found) nounwind {
  call void @llvm.aarch64.set.fpcr(i64 %found)
  ret void
}
"""
_FLOAT_OTHER = """
define internal i64 @float_reset() nounwind {
  ret i64 0
}
define internal void @float_restore(i64 %found) nounwind {
  ret void
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

_POOL = """
@state = internal global i64 4294967295, align 128
@done = internal global i32 0, align 128
@waiting = internal global i32 0, align 4
@sleepers = internal global i32 0, align 128
@rows = internal global ptr null, align 128
@table = internal global ptr null, align 8
@total = internal global i64 0, align 8
@busy = internal global i32 0, align 128
@stop = internal global i32 0, align 4
@avoided = internal global i32 -1, align 4
@wanted = internal global i64 0, align 8
@workers = internal global i64 0, align 8
@threads = internal global [$MAX_WORKERS x i64] zeroinitializer, align 8
@attributes = internal global [32 x i64] zeroinitializer, align 16 ; no system's are larger
@blocked = internal constant [$SIGNAL_BYTES x i8] c"$SIGNALS", align 8

declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sched_yield()
declare i64 @llvm.smin.i64(i64, i64)

; how many chunks a row has: ceil(units / grain), one if there is no grain
define internal i64 @chunks(ptr %row) nounwind {
  %units.at = getelementptr i64, ptr %row, i64 2
  %units = load i64, ptr %units.at
  %some = icmp sgt i64 %units, 0
  br i1 %some, label %count, label %none
none:
  ret i64 0
count:
  %grain.at = getelementptr i64, ptr %row, i64 3
  %grain = load i64, ptr %grain.at
  %fits = icmp sle i64 %units, %grain
  %whole = icmp sle i64 %grain, 0
  %single = or i1 %fits, %whole
  br i1 %single, label %one, label %divide
one:
  ret i64 1
divide:
  %less = sub i64 %units, 1
  %full = udiv i64 %less, %grain
  %n = add i64 %full, 1
  ret i64 %n
}

; run units [begin, end) of a row; %workspace is a worker's, or null on the calling thread
define internal void @launch(ptr %row, ptr %table, i64 %begin, i64 %end, ptr %workspace) nounwind {
  %kernel = load ptr, ptr %row
  %offset.at = getelementptr i64, ptr %row, i64 1
  %offset = load i64, ptr %offset.at
  %args = getelementptr i64, ptr %table, i64 %offset
  call void %kernel(ptr %args, i64 %begin, i64 %end, ptr %workspace)
  ret void
}

; run rows whole, in order, on this thread
define internal void @serial(ptr %rows, i64 %n, ptr %table) nounwind {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %latch ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %out
body:
  %row = getelementptr [5 x i64], ptr %rows, i64 %i
  %units.at = getelementptr i64, ptr %row, i64 2
  %units = load i64, ptr %units.at
  %some = icmp sgt i64 %units, 0
  br i1 %some, label %run, label %latch
run:
  call void @launch(ptr %row, ptr %table, i64 0, i64 %units, ptr null)
  br label %latch
latch:
  %next = add i64 %i, 1
  br label %head
out:
  ret void
}

; claim and run chunks of the region of generation %gen until none is left
define internal void @work(i64 %gen, ptr %workspace) nounwind {
entry:
  %rows = load atomic ptr, ptr @rows acquire, align 8
  %table = load atomic ptr, ptr @table acquire, align 8
  %total = load atomic i64, ptr @total acquire, align 8
  br label %claim
claim:
  %row.from = phi ptr [ %rows, %entry ], [ %row.from, %try ], [ %row, %ran ]
  %first.from = phi i64 [ 0, %entry ], [ %first.from, %try ], [ %first, %ran ]
  %word = load atomic i64, ptr @state acquire, align 8
  %gen.now = lshr i64 %word, 32
  %same = icmp eq i64 %gen.now, %gen
  br i1 %same, label %check, label %out
check:
  %chunk = and i64 %word, 4294967295
  %left = icmp ult i64 %chunk, %total
  br i1 %left, label %try, label %out
try:
  %word.next = add i64 %word, 1
  %swap = cmpxchg ptr @state, i64 %word, i64 %word.next acq_rel acquire
  %ok = extractvalue { i64, i1 } %swap, 1
  br i1 %ok, label %locate, label %claim
locate:
  %row = phi ptr [ %row.from, %try ], [ %row.next, %skip ]
  %first = phi i64 [ %first.from, %try ], [ %first.next, %skip ]
  %n = call i64 @chunks(ptr %row)
  %first.next = add i64 %first, %n
  %here = icmp ult i64 %chunk, %first.next
  br i1 %here, label %run, label %skip
skip:
  %row.next = getelementptr [5 x i64], ptr %row, i64 1
  br label %locate
run:
  %units.at = getelementptr i64, ptr %row, i64 2
  %units = load i64, ptr %units.at
  %grain.at = getelementptr i64, ptr %row, i64 3
  %grain = load i64, ptr %grain.at
  %index = sub i64 %chunk, %first
  %begin = mul i64 %index, %grain
  %rest = sub i64 %units, %begin
  %size = call i64 @llvm.smin.i64(i64 %rest, i64 %grain)
  %single = icmp eq i64 %n, 1
  %count = select i1 %single, i64 %units, i64 %size
  %start = select i1 %single, i64 0, i64 %begin
  %end = add i64 %start, %count
  call void @launch(ptr %row, ptr %table, i64 %start, i64 %end, ptr %workspace)
  br label %ran
ran:
  %done.old = atomicrmw add ptr @done, i32 1 seq_cst
  %done.now = add i32 %done.old, 1
  %done.wide = zext i32 %done.now to i64
  %all = icmp eq i64 %done.wide, %total
  br i1 %all, label %last, label %claim
last:
  %waits = load atomic i32, ptr @waiting seq_cst, align 4
  %waited = icmp ne i32 %waits, 0
  br i1 %waited, label %tell, label %out
tell:
  call void @wake(ptr @done, i64 1)
  br label %out
out:
  ret void
}

define internal ptr @worker(ptr %unused) nounwind {
entry:
  %workspace = alloca i8, i64 $WORKSPACE, align 64
  %masked = call i32 @pthread_sigmask(i32 $SIG_BLOCK, ptr @blocked, ptr null)
  %float = call i64 @float_reset()
  %gen.word = getelementptr i32, ptr @state, i64 1
  br label %watch
watch:
  %seen = phi i64 [ -1, %entry ], [ %seen, %awake ], [ %gen, %serve ]
  br label %spin
spin:
  %k = phi i64 [ 0, %watch ], [ %k.next, %idle ]
  %word = load atomic i64, ptr @state acquire, align 8
  %gen = lshr i64 %word, 32
  %new = icmp ne i64 %gen, %seen
  br i1 %new, label %serve.or.stop, label %idle
idle:
  $PAUSE
  %k.next = add i64 %k, 1
  %again = icmp slt i64 %k.next, $WORKER_SPINS
  br i1 %again, label %spin, label %sleep
sleep:
  %s0 = atomicrmw add ptr @sleepers, i32 1 seq_cst
  %gen.low = trunc i64 %seen to i32
  call void @wait(ptr %gen.word, i32 %gen.low)
  br label %awake
awake:
  %s1 = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  br label %watch
serve.or.stop:
  %stopped = load atomic i32, ptr @stop acquire, align 4
  %ends = icmp ne i32 %stopped, 0
  br i1 %ends, label %out, label %serve
serve:
  call void @work(i64 %gen, ptr %workspace)
  br label %watch
out:
  ret ptr null
}

; one parallel region: the caller opens it, works, and waits for the chunks that others have claimed
define internal void @region(ptr %rows, ptr %table, i64 %total) nounwind {
entry:
  call void @place()
  %old = load atomic i64, ptr @state monotonic, align 8
  %closed = or i64 %old, 4294967295
  store atomic i64 %closed, ptr @state seq_cst, align 8
  store atomic ptr %rows, ptr @rows release, align 8
  store atomic ptr %table, ptr @table release, align 8
  store atomic i64 %total, ptr @total release, align 8
  store atomic i32 0, ptr @done release, align 4
  ; closed + 1 carries into the generation: the next one, chunk 0
  %open = add i64 %closed, 1
  store atomic i64 %open, ptr @state seq_cst, align 8
  %gen = lshr i64 %open, 32
  %asleep = load atomic i32, ptr @sleepers seq_cst, align 4
  %some = icmp ne i32 %asleep, 0
  br i1 %some, label %rouse, label %join
rouse:
  %gen.word = getelementptr i32, ptr @state, i64 1
  %helpers = sub i64 %total, 1
  %n = call i64 @llvm.smin.i64(i64 %helpers, i64 $MAX_WORKERS)
  call void @wake(ptr %gen.word, i64 %n)
  br label %join
join:
  call void @work(i64 %gen, ptr null)
  %total.low = trunc i64 %total to i32
  br label %spin
spin:
  %k = phi i64 [ 0, %join ], [ %k.next, %pause ]
  %d = load atomic i32, ptr @done acquire, align 4
  %all = icmp eq i32 %d, %total.low
  br i1 %all, label %out, label %pause
pause:
  $PAUSE
  %k.next = add i64 %k, 1
  %again = icmp slt i64 %k.next, $CALLER_SPINS
  br i1 %again, label %spin, label %park
park:
  call void @unplace()
  store atomic i32 1, ptr @waiting seq_cst, align 4
  br label %look
look:
  %d2 = load atomic i32, ptr @done seq_cst, align 4
  %all2 = icmp eq i32 %d2, %total.low
  br i1 %all2, label %unpark, label %sleep
sleep:
  call void @wait(ptr @done, i32 %d2)
  br label %look
unpark:
  store atomic i32 0, ptr @waiting seq_cst, align 4
  br label %out
out:
  ret void
}

; bring the workers up to the wanted number; a system that refuses a thread gets a smaller pool
define internal void @hire() nounwind {
entry:
  br label %head
head:
  %have = load i64, ptr @workers
  %want = load i64, ptr @wanted
  %more = icmp slt i64 %have, %want
  br i1 %more, label %create, label %out
create:
  %slot = getelementptr [$MAX_WORKERS x i64], ptr @threads, i64 0, i64 %have
  call i32 @pthread_attr_init(ptr @attributes)
  call i32 @pthread_attr_setstacksize(ptr @attributes, i64 $STACK)
  %failed = call i32 @pthread_create(ptr %slot, ptr @attributes, ptr @worker, ptr null)
  call i32 @pthread_attr_destroy(ptr @attributes)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %count, label %refused
count:
  %now = add i64 %have, 1
  store i64 %now, ptr @workers
  store i32 -1, ptr @avoided
  br label %head
refused:
  store i64 %have, ptr @wanted
  br label %out
out:
  ret void
}

; run rows in order, regions of several chunks on all threads; the caller holds @busy
define internal void @parallel(ptr %rows, i64 %n, ptr %table) nounwind {
entry:
  call void @hire()
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %j.next, %ran ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %gather, label %out
gather:
  %j = phi i64 [ %i, %head ], [ %j.next, %gather ]
  %sum = phi i64 [ 0, %head ], [ %sum.next, %gather ]
  %row = getelementptr [5 x i64], ptr %rows, i64 %j
  %c = call i64 @chunks(ptr %row)
  %sum.next = add i64 %sum, %c
  %joins.at = getelementptr i64, ptr %row, i64 4
  %joins = load i64, ptr %joins.at
  %joined = icmp ne i64 %joins, 0
  %j.next = add i64 %j, 1
  %within = icmp slt i64 %j.next, %n
  %on = and i1 %joined, %within
  br i1 %on, label %gather, label %decide
decide:
  %from = getelementptr [5 x i64], ptr %rows, i64 %i
  %several = icmp sgt i64 %sum.next, 1
  ; chunk numbers have 32 bits, the last of them says closed
  %counted = icmp slt i64 %sum.next, 2147483647
  %shared = and i1 %several, %counted
  br i1 %shared, label %open, label %alone
open:
  call void @region(ptr %from, ptr %table, i64 %sum.next)
  br label %ran
alone:
  %length = sub i64 %j.next, %i
  call void @serial(ptr %from, i64 %length, ptr %table)
  br label %ran
ran:
  br label %head
out:
  ret void
}

; on all threads if the pool is free, else on this thread: the results are the same
define internal void @spread(ptr %rows, i64 %n, ptr %table) nounwind {
entry:
  %want = load atomic i64, ptr @wanted monotonic, align 8
  %some = icmp sgt i64 %want, 0
  br i1 %some, label %try, label %alone
try:
  %swap = cmpxchg ptr @busy, i32 0, i32 1 acq_rel monotonic
  %ok = extractvalue { i32, i1 } %swap, 1
  br i1 %ok, label %pooled, label %alone
pooled:
  call void @parallel(ptr %rows, i64 %n, ptr %table)
  store atomic i32 0, ptr @busy release, align 4
  ret void
alone:
  call void @serial(ptr %rows, i64 %n, ptr %table)
  ret void
}

; let every worker go, and set how many the next program that wants some may have
define void @${P}_resize(i64 %want) nounwind {
entry:
  br label %lock
lock:
  %swap = cmpxchg ptr @busy, i32 0, i32 1 acq_rel monotonic
  %ok = extractvalue { i32, i1 } %swap, 1
  br i1 %ok, label %dismiss, label %yield
yield:
  %y = call i32 @sched_yield()
  br label %lock
dismiss:
  store atomic i32 1, ptr @stop release, align 4
  %old = load atomic i64, ptr @state monotonic, align 8
  %closed = or i64 %old, 4294967295
  %next = add i64 %closed, 4294967296
  store atomic i64 %next, ptr @state seq_cst, align 8
  %gen.word = getelementptr i32, ptr @state, i64 1
  call void @wake(ptr %gen.word, i64 $MAX_WORKERS)
  %n = load i64, ptr @workers
  br label %head
head:
  %i = phi i64 [ 0, %dismiss ], [ %i.next, %join ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %join, label %out
join:
  %slot = getelementptr [$MAX_WORKERS x i64], ptr @threads, i64 0, i64 %i
  %thread = load i64, ptr %slot
  %r = call i32 @pthread_join(i64 %thread, ptr null)
  %i.next = add i64 %i, 1
  br label %head
out:
  store i64 0, ptr @workers
  store i64 %want, ptr @wanted
  store atomic i32 0, ptr @stop release, align 4
  store atomic i32 0, ptr @busy release, align 4
  ret void
}

; how many workers programs may have
define i64 @${P}_wanted() nounwind {
  %want = load atomic i64, ptr @wanted monotonic, align 8
  ret i64 %want
}

; how many workers there are
define i64 @${P}_workers() nounwind {
  %have = load i64, ptr @workers
  ret i64 %have
}

; before the first program, and in a forked child, which has none of its parent's workers
define void @${P}_reset() nounwind {
  %old = load atomic i64, ptr @state monotonic, align 8
  %closed = or i64 %old, 4294967295
  store atomic i64 %closed, ptr @state seq_cst, align 8
  store i64 0, ptr @workers
  store i32 0, ptr @sleepers
  store i32 0, ptr @waiting
  store i32 0, ptr @stop
  store i32 0, ptr @busy
  store i32 -1, ptr @avoided
  %epoch = load i64, ptr @epoch
  %epoch.next = add i64 %epoch, 1
  store i64 %epoch.next, ptr @epoch
  call void @sleep_init()
  ret void
}
"""

# control: program, nrows, table, patches, npatches, bases, running, nbases
_DRIVER = """
; a program is running when its last field equals the epoch, which a fork moves on
@epoch = internal global i64 0, align 8
$BUSY_TEXT
$LIST_TEXT
$ADDRESS_TEXT
@_Py_NoneStruct = external global i8
@PyExc_RuntimeError = external global ptr
@PyExc_ValueError = external global ptr
@PyFloat_Type = external global i8

declare void @Py_IncRef(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare i32 @PyObject_IsInstance(ptr, ptr)
declare double @PyFloat_AsDouble(ptr)
declare ptr @PyErr_Occurred()
declare void @PyErr_SetString(ptr, ptr)
declare ptr @PyErr_Format(ptr, ptr, ...)
declare i64 @PyList_Size(ptr)
declare ptr @PyList_GetItem(ptr, i64)

; table[slot] = bases[index] + offset
define internal void @patch(ptr %table, ptr %patches, i64 %n, ptr %bases) nounwind {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %out
body:
  %at = getelementptr [3 x i64], ptr %patches, i64 %i
  %slot = load i64, ptr %at
  %index.at = getelementptr i64, ptr %at, i64 1
  %index = load i64, ptr %index.at
  %offset.at = getelementptr i64, ptr %at, i64 2
  %offset = load i64, ptr %offset.at
  %base.at = getelementptr i64, ptr %bases, i64 %index
  %base = load i64, ptr %base.at
  %address = add i64 %base, %offset
  %entry.at = getelementptr i64, ptr %table, i64 %slot
  store i64 %address, ptr %entry.at
  %next = add i64 %i, 1
  br label %head
out:
  ret void
}

; whether some row has more than one chunk
define internal i1 @wide(ptr %rows, i64 %n) nounwind {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %no
body:
  %row = getelementptr [5 x i64], ptr %rows, i64 %i
  %units.at = getelementptr i64, ptr %row, i64 2
  %units = load i64, ptr %units.at
  %grain.at = getelementptr i64, ptr %row, i64 3
  %grain = load i64, ptr %grain.at
  %next = add i64 %i, 1
  %over = icmp sgt i64 %units, %grain
  %grained = icmp sgt i64 %grain, 0
  %splits = and i1 %over, %grained
  br i1 %splits, label %yes, label %head
yes:
  ret i1 true
no:
  ret i1 false
}

define internal ptr @execute(ptr %control) nounwind {
entry:
  %running.at = getelementptr i64, ptr %control, i64 6
  %running = load i64, ptr %running.at
  %epoch = load i64, ptr @epoch
  %twice = icmp eq i64 %running, %epoch
  br i1 %twice, label %refuse, label %start
refuse:
  %error = load ptr, ptr @PyExc_RuntimeError
  call void @PyErr_SetString(ptr %error, ptr @busy.text)
  ret ptr null
start:
  store i64 %epoch, ptr %running.at
  %rows = load ptr, ptr %control
  %nrows.at = getelementptr i64, ptr %control, i64 1
  %nrows = load i64, ptr %nrows.at
  %table.at = getelementptr i64, ptr %control, i64 2
  %table = load ptr, ptr %table.at
  %patches.at = getelementptr i64, ptr %control, i64 3
  %patches = load ptr, ptr %patches.at
  %npatches.at = getelementptr i64, ptr %control, i64 4
  %npatches = load i64, ptr %npatches.at
  %bases.at = getelementptr i64, ptr %control, i64 5
  %bases = load ptr, ptr %bases.at
  call void @patch(ptr %table, ptr %patches, i64 %npatches, ptr %bases)
  %float = call i64 @float_reset()
  %wide = call i1 @wide(ptr %rows, i64 %nrows)
  %many = icmp sge i64 %nrows, $LONG_PROGRAM
  %long = or i1 %wide, %many
  br i1 %long, label %free, label %held
held:
  call void @serial(ptr %rows, i64 %nrows, ptr %table)
  call void @float_restore(i64 %float)
  store i64 0, ptr %running.at
  br label %out
free:
  %thread = call ptr @PyEval_SaveThread()
  br i1 %wide, label %pooled, label %alone
pooled:
  call void @spread(ptr %rows, i64 %nrows, ptr %table)
  br label %ran
alone:
  call void @serial(ptr %rows, i64 %nrows, ptr %table)
  br label %ran
ran:
  call void @float_restore(i64 %float)
  call void @PyEval_RestoreThread(ptr %thread)
  ; NOTE: after the interpreter lock is back, which is what makes a plain store enough
  store i64 0, ptr %running.at
  br label %out
out:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
}

; the 64-bit value of a Python int in *%out; false with an exception set if there is none
define internal i1 @word(ptr %object, ptr %out) nounwind {
  %value = call i64 @PyLong_AsLongLong(ptr %object)
  store i64 %value, ptr %out
  %odd = icmp eq i64 %value, -1
  br i1 %odd, label %doubt, label %yes
doubt:
  %error = call ptr @PyErr_Occurred()
  %quiet = icmp eq ptr %error, null
  br i1 %quiet, label %complain, label %no
complain:
  %kind = load ptr, ptr @PyExc_ValueError
  call void @PyErr_SetString(ptr %kind, ptr @address.text)
  br label %no
no:
  ret i1 false
yes:
  ret i1 true
}

; the 64-bit value of any Python int in *%out, or the bits of a float; false with an exception set if it has none
define internal i1 @number(ptr %object, ptr %out) nounwind {
  %is.float = call i32 @PyObject_IsInstance(ptr %object, ptr @PyFloat_Type)
  %floats = icmp eq i32 %is.float, 1
  br i1 %floats, label %float, label %int
float:
  %real = call double @PyFloat_AsDouble(ptr %object)
  store double %real, ptr %out
  br label %yes
int:
  %value = call i64 @PyLong_AsLongLong(ptr %object)
  store i64 %value, ptr %out
  %odd = icmp eq i64 %value, -1
  br i1 %odd, label %doubt, label %yes
doubt:
  %error = call ptr @PyErr_Occurred()
  %quiet = icmp eq ptr %error, null
  br i1 %quiet, label %yes, label %no
no:
  ret i1 false
yes:
  ret i1 true
}

; METH_O: run(address of the control block)
define ptr @${P}_run(ptr %self, ptr %address) nounwind {
  %slot = alloca ptr, align 8
  %ok = call i1 @word(ptr %address, ptr %slot)
  br i1 %ok, label %go, label %fail
fail:
  ret ptr null
go:
  %control = load ptr, ptr %slot
  %r = call ptr @execute(ptr %control)
  ret ptr %r
}

; METH_NOARGS: run(); self is the address of the control block
define ptr @${P}_run_bound(ptr %self, ptr %unused) nounwind {
  %r = call ptr @${P}_run(ptr null, ptr %self)
  ret ptr %r
}

; METH_O: launch(list of base addresses); self is the address of the control block
define ptr @${P}_launch(ptr %self, ptr %list) nounwind {
entry:
  %slot = alloca ptr, align 8
  %ok = call i1 @word(ptr %self, ptr %slot)
  br i1 %ok, label %measure, label %fail
measure:
  %control = load ptr, ptr %slot
  %bases.at = getelementptr i64, ptr %control, i64 5
  %bases = load ptr, ptr %bases.at
  %n.at = getelementptr i64, ptr %control, i64 7
  %n = load i64, ptr %n.at
  ; -1 with an exception, which the one below replaces, if it is no list
  %given = call i64 @PyList_Size(ptr %list)
  %fits = icmp eq i64 %given, %n
  br i1 %fits, label %head, label %refuse
refuse:
  %kind = load ptr, ptr @PyExc_ValueError
  %null = call ptr (ptr, ptr, ...) @PyErr_Format(ptr %kind, ptr @list.text, i64 %n)
  br label %fail
head:
  %i = phi i64 [ 0, %measure ], [ %next, %body ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %go
body:
  %item = call ptr @PyList_GetItem(ptr %list, i64 %i)
  %base.at = getelementptr i64, ptr %bases, i64 %i
  %read = call i1 @number(ptr %item, ptr %base.at)
  %next = add i64 %i, 1
  br i1 %read, label %head, label %fail
go:
  %r = call ptr @execute(ptr %control)
  ret ptr %r
fail:
  ret ptr null
}
"""


def _c_string(name: str, text: str) -> str:
    return f'@{name} = internal constant [{len(text) + 1} x i8] c"{text}\\00", align 1'


def render(platform: Platform) -> tuple[str, str]:
    """The IR of the runtime for a platform, and the prefix of the names that it exports."""
    pause, pause_declaration = _PAUSE.get(platform.architecture, ("", ""))
    floats = {"x86_64": _FLOAT_X86, "aarch64": _FLOAT_AARCH64}
    sleep = _SLEEP_CONDITION if platform.futex is None else _SLEEP_FUTEX
    source = Template(
        "\n".join(
            (
                pause_declaration,
                floats.get(platform.architecture, _FLOAT_OTHER),
                sleep,
                _PLACE_AFFINITY if platform.affinity else _PLACE_ANYWHERE,
                _POOL,
                _DRIVER,
            )
        )
    )
    values: dict[str, object] = {
        "FUTEX": platform.futex,
        "PAUSE": pause,
        "SIG_BLOCK": platform.sig_block,
        "SIGNAL_BYTES": len(platform.blocked_signals),
        "SIGNALS": "".join(f"\\{byte:02X}" for byte in platform.blocked_signals),
        "MAX_WORKERS": MAX_WORKERS,
        "MAX_PLACED": MAX_PLACED,
        "STACK": STACK,
        "WORKSPACE": WORKSPACE,
        "WORKER_SPINS": WORKER_SPINS,
        "CALLER_SPINS": CALLER_SPINS,
        "LONG_PROGRAM": LONG_PROGRAM,
        "BUSY_TEXT": _c_string("busy.text", "run: this program runs in another thread"),
        "LIST_TEXT": _c_string("list.text", "launch: a list of %zd base addresses is required"),
        "ADDRESS_TEXT": _c_string("address.text", "run: -1 is no address"),
    }
    digest = hashlib.sha256(source.substitute(values, P="p").encode()).hexdigest()
    prefix = f"lazyt_runtime_{digest[:16]}"
    return source.substitute(values, P=prefix), prefix
